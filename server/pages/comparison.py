"""Two jobs side by side: what each found for the shapes that both searched."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from ..auth import Reader
from ..context import ContextDep
from ..store import ConfigEntry, Job
from .filters import NamePart, filter_form, text_field
from .format import ago, optional_time, settings_text
from .html import Child, Markup, table, tag
from .layout import empty, page, pill

router = APIRouter(include_in_schema=False)


@router.get("/compare")
def compare_page(context: ContextDep, _reader: Reader, a: NamePart = "", b: NamePart = "") -> Response:
    """The jobs ``a`` and ``b``; without them the form that asks for two."""
    jobs: list[Job] = []
    found: list[dict[tuple[str, str], Mapping[str, Any]]] = []
    if a and b:
        with context.store.read() as tx:
            jobs = [tx.jobs.get(a), tx.jobs.get(b)]
            found = [_records(tx.config_history.of_job(job.id)) for job in jobs]
    return page(
        "Compare",
        tag("div", tag("h1", "Two jobs"), class_="title"),
        filter_form("/compare", text_field("a", "Job A", a), text_field("b", "Job B", b)),
        [_heads(jobs), _comparison(*found)] if jobs else empty("Give the ids of two jobs."),
        current="/",
    )


def _records(entries: list[ConfigEntry]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """By shape and dtype; where a job was run again, its last one."""
    return {(entry.shape_key, entry.dtype): json.loads(entry.body) for entry in entries}


def _heads(jobs: list[Job]) -> Markup:
    rows = [
        tag(
            "tr",
            tag("th", side, scope="row"),
            tag("td", tag("a", f"{job.kernel_name} {job.id[:8]}", href=f"/jobs/{job.id}")),
            tag("td", pill(job.state.value)),
            tag("td", job.device_key or job.device),
            tag("td", job.screened, class_="number"),
            tag("td", ago(job.created_at)),
        )
        for side, job in zip("AB", jobs, strict=True)
    ]
    return table(["", "Job", "State", "Device", "Trials", "Submitted"], rows, caption="The jobs")


def _comparison(
    a: Mapping[tuple[str, str], Mapping[str, Any]], b: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Child:
    shapes = list(dict.fromkeys([*a, *b]))
    if not shapes:
        return empty("Neither has a result.")
    note = "Ratios of times that were not measured together: where the intervals overlap, nothing is said."
    return [
        tag("h2", "Shapes"),
        tag("p", note, class_="muted"),
        table(
            ["Shape", "A", "B", "A over B", "", "Configuration of A", "Configuration of B"],
            [_shape_row(shape, a.get(shape), b.get(shape)) for shape in shapes],
            caption="What both found",
        ),
    ]


def _shape_row(shape: tuple[str, str], a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> Markup:
    ratio, word = "–", "–"
    if a is not None and b is not None:
        ratio = f"{a['time_ns']['median'] / b['time_ns']['median']:.3f}" if b["time_ns"]["median"] else "–"
        word = _faster(a["time_ns"], b["time_ns"])
    return tag(
        "tr",
        tag("th", tag("code", shape[0]), " ", shape[1], scope="row"),
        [tag("td", optional_time(_median(record)), class_="number") for record in (a, b)],
        tag("td", ratio, class_="number"),
        tag("td", word),
        [tag("td", tag("code", settings_text(record["config"])) if record else "–") for record in (a, b)],
    )


def _median(record: Mapping[str, Any] | None) -> float | None:
    return None if record is None else record["time_ns"]["median"]


def _faster(a: Mapping[str, float], b: Mapping[str, float]) -> str:
    """Which interval of times lies below the other."""
    if a["high"] < b["low"]:
        return "A is faster"
    return "B is faster" if b["high"] < a["low"] else "alike"
