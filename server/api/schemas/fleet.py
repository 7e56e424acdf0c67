"""Devices and workers, and what workers send."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from .common import JSON_NUMBER, Body, Document, Text

# What is before the slash is the worker's name, a segment of addresses: not empty, neither "." nor "..", and on
# one line of a log.
WorkerProcess = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^/\x00-\x1f]*[^/.\x00-\x1f][^/\x00-\x1f]*(/[^/\x00-\x1f]*)?$",
        description="`device@host/pid`.",
        examples=["cuda:0@gpu-a/4711"],
    ),
]


class DeviceAnswer(BaseModel):
    key: str
    kind: str
    name: str
    worker: str
    fingerprint: Document
    first_seen: datetime
    last_seen: datetime


class DeviceList(BaseModel):
    devices: list[DeviceAnswer]


class WorkerAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "cuda:0@gpu-a",
                    "host": "gpu-a",
                    "device": "cuda:0",
                    "devices": ["cuda/h200/cc90/sm132/140gib/700w"],
                    "state": "draining",
                    "draining": True,
                    "drained_at": "2026-11-23T09:30:00Z",
                    "drained_by": "operator",
                    "job": "8d0ce8f2-5c6a-4b0e-9b57-b4b3f6f2a1de",
                    "first_seen": "2026-11-20T08:00:00Z",
                    "last_seen": "2026-11-23T09:30:04Z",
                    "toolchain": {"deuteron": "0.1.0", "target": "cuda:90a", "driver": "580.95"},
                }
            ]
        }
    )

    name: str = Field(description="`device@host`: no restart of the worker changes it.")
    host: str
    device: str = Field(description="As the host calls it, such as `cuda:0`.")
    devices: list[str] = Field(description="Keys as in GET /v1/devices; empty until the worker has announced them.")
    state: Literal["idle", "running", "draining", "away"] = Field(
        description="`draining`: it gets no other job, and finishes `job` if it has one; `away`: nobody sees it."
    )
    draining: bool = Field(description="Whether it was drained; a worker that is away keeps that.")
    drained_at: datetime | None
    drained_by: str | None = Field(description="The token of who drained it.")
    job: str | None = Field(description="Id of the job that it has.")
    first_seen: datetime
    last_seen: datetime = Field(
        description="When the server that dispatches saw it last; at most 10 s old while it is."
    )
    toolchain: dict[str, str] | None = Field(description="What it compiles with, if it said so.")


class WorkerList(BaseModel):
    workers: list[WorkerAnswer]


class ClaimBody(Body):
    claim_id: Annotated[str, Field(pattern=r"^[\w-]+\.[\w-]+$", max_length=80)]
    worker: WorkerProcess


class FinishedTrial(BaseModel):
    shape: dict[str, int]
    dtype: str
    trial: Document


class SearchesAnswer(BaseModel):
    searches: list[Document] = Field(
        description="SearchLogs: kernel_name, kernel_hash, device (key), shape, dtype, and `known`: configurations "
        "with their times in ns, fastest first."
    )


class ClaimAnswer(BaseModel):
    attempt: int
    lease_seconds: float
    spec: Document
    finished: list[FinishedTrial]


_LAST_NUMBER = 2**31 - 1


class DeliveryBody(Body):
    sequence: Annotated[int, Field(ge=1, le=_LAST_NUMBER), JSON_NUMBER]
    event: Document


class EventsBody(Body):
    claim_id: Annotated[str, Field(max_length=80)]
    events: list[DeliveryBody] = Field(max_length=1000)
    after: Annotated[
        int,
        Field(
            ge=0,
            le=_LAST_NUMBER,
            description="The last event that was acknowledged to the run; 0 from one that begins with its first.",
        ),
        JSON_NUMBER,
    ] = 0


class HeartbeatBody(Body):
    claim_id: Annotated[str, Field(max_length=80)]


class ReleaseBody(Body):
    claim_id: Annotated[str, Field(max_length=80)]


class ReceiptAnswer(BaseModel):
    proceed: bool = Field(description="False: another run has the job, or it has ended. Stop.")
    cancel: bool = Field(description="True: somebody asked for the job's end.")
    missing: bool = Field(description="True: not all that was acknowledged is there any more. Send every event again.")


class AnnounceBody(Body):
    worker: WorkerProcess
    devices: list[Document] = Field(max_length=64)
    toolchain: dict[Text, Text] | None = Field(None, max_length=64, description="What it compiles with.")


class AnnounceAnswer(BaseModel):
    keys: list[str]
