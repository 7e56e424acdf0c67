"""Lookups, records and bundles."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StrictBool

from ...models import MOST_DTYPE, MOST_NAME, MOST_SHAPE_KEY
from .common import Body, Document, Integer, Text


class LookupBody(Body):
    kernel: str = Field(
        max_length=MOST_NAME,
        description="Kernel hash, or a name (of a built-in workload or the newest kernel so called).",
    )
    device: str = Field(
        max_length=MOST_NAME, description="Device key as in GET /v1/devices, or a device name such as `NVIDIA H200`."
    )
    shape: dict[Text, Integer] = Field(max_length=MOST_SHAPE_KEY // 4, description="Sizes by their names.")
    dtype: str = Field("f32", max_length=MOST_DTYPE)
    toolchain: dict[Text, Text] | None = Field(
        None, max_length=64, description="What you compile with; records of others are answered as unverified."
    )


class LookupBatchBody(Body):
    lookups: list[LookupBody] = Field(min_length=1, max_length=1000)
    strict: StrictBool = Field(False, description="404 unless every answer is exact.")


class ToolchainDifference(BaseModel):
    name: str = Field(description="Part of the toolchain, such as `compiler` or `driver`.")
    recorded: str | None = Field(description="What the record was measured with; null where it does not say.")
    current: str | None = Field(description="What was given in the question; null where it does not say.")


class LookupAnswer(BaseModel):
    match: Literal["exact", "predicted", "nearest_shape", "other_toolchain", "default"]
    reason: str = Field(description="Why this answer, in words.")
    config: Document = Field(
        description="The configuration to launch with; empty for `default`: use the kernel's own defaults."
    )
    record: Document | None = Field(
        description="The ConfigRecord it comes from, with provenance; null for a prediction or a default."
    )
    toolchain_differences: list[ToolchainDifference] | None = Field(
        description="Where the toolchain of the record, or of the times that a prediction rests on, is not the given "
        "one; null if none was given or there is no record."
    )
    expected_loss: float | None = Field(
        None,
        description="Of a prediction: how much slower than the best measured is expected, 0.03 for 3 %; null of "
        "records.",
    )
    upstream: Literal["reached", "unreachable", "refused"] | None = Field(
        None, description="Whether the upstream was, where it was needed; null without one, and for exact answers."
    )


class LookupBatchAnswer(BaseModel):
    answers: list[LookupAnswer]


class ReasonBody(Body):
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="Why, for who reads the history.", examples=["measured while the fan was broken"]
    )


class ConfigAnswer(BaseModel):
    id: str
    pinned: bool
    job_id: str | None = Field(description="The job that found it; null if it was brought from elsewhere.")
    record: Document
    links: dict[str, str]


class HistoryEntry(BaseModel):
    config_id: str
    action: Literal["stored", "kept", "withdrawn", "pinned", "unpinned"] = Field(
        description="`stored`: it became the answer; `kept`: it arrived and another stayed the answer."
    )
    who: str = Field(description="The worker that measured it, or the token of who changed it; empty if not known.")
    reason: str
    at: datetime
    job_id: str | None
    time_ns: Document = Field(description="Median and interval.")
    toolchain: dict[str, str]
    config: Document


class HistoryAnswer(BaseModel):
    history: list[HistoryEntry] = Field(description="Of all records under the same key, oldest first.")


class WithdrawAnswer(BaseModel):
    withdrawn: str
    now: ConfigAnswer | None = Field(description="What is stored under the key now; null for nothing.")


class ConfigPage(BaseModel):
    configs: list[Document]
    next: str | None


class PiecesAnswer(BaseModel):
    sha256: str = Field(description="Of the bundle.")
    sizes: list[int] = Field(description="Bytes of each piece, in order; together the bundle.")
    digests: list[str] = Field(description="The first 32 hexadecimal digits of the sha256 of each.")
