"""All trials of a job, in windows."""

from __future__ import annotations

import json
from typing import Annotated, get_args

from fastapi import APIRouter, Query, Response

from deuteron.tuner.codec import decode
from deuteron.tuner.trial import Phase, Status, Trial

from ..auth import Reader
from ..context import ContextDep
from ..store import StoredTrial
from .filters import NamePart, choice_field, filter_form, page_links
from .format import ago, optional_time, settings_text
from .html import Markup, table, tag
from .layout import empty, page, pill

router = APIRouter(include_in_schema=False)

_SHOWN = 200
_STATUSES, _PHASES = get_args(Status), get_args(Phase)


@router.get("/jobs/{job_id}/trials")
def trials_page(
    job_id: str,
    context: ContextDep,
    _reader: Reader,
    only: NamePart = "",
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
) -> Response:
    """Trials, newest first; ``only`` those of a status or of a phase."""
    status = only if only in _STATUSES else None
    phase = only if only in _PHASES else None
    with context.store.read() as tx:
        job = tx.jobs.get(job_id)
        trials = tx.trials.newest(job_id, before=before, limit=_SHOWN + 1, status=status, phase=phase)
    more, trials = len(trials) > _SHOWN, trials[:_SHOWN]
    address = f"/jobs/{job_id}/trials"
    links: dict[str, dict[str, str | int]] = {"Newest": {}} if before is not None else {}
    links |= {"Older": {"before": trials[-1].sequence}} if more else {}
    title = tag("a", f"{job.kernel_name} {job.id[:8]}", href=f"/jobs/{job.id}")
    return page(
        f"{job.kernel_name} {job.id[:8]} trials",
        tag(
            "div",
            tag("h1", "Trials of ", title),
            tag("span", f"{job.trials_done} trials", class_="muted"),
            class_="title",
        ),
        filter_form(address, choice_field("only", "Only", only, [*_STATUSES, *_PHASES])),
        table(
            ["#", "Shape", "Dtype", "Phase", "Status", "Time", "Bound by", "Configuration", "When"],
            [_row(address, stored) for stored in trials],
            caption=f"At most {_SHOWN} trials, newest first",
        )
        if trials
        else empty("No trial is like that."),
        page_links(address, {"only": only}, links) if links else None,
        current="/",
    )


def _row(address: str, stored: StoredTrial) -> Markup:
    trial = decode(stored.body, Trial, "trial")
    return tag(
        "tr",
        tag("td", tag("a", stored.sequence, href=f"{address}/{stored.trial_id}"), class_="number"),
        tag("td", settings_text(json.loads(stored.shape))),
        tag("td", stored.dtype),
        tag("td", stored.phase),
        tag("td", pill(stored.status)),
        tag("td", optional_time(stored.median_ns), class_="number"),
        tag("td", stored.bound or "–"),
        tag("td", tag("code", settings_text(trial.config))),
        tag("td", tag("time", ago(stored.recorded_at), datetime=stored.recorded_at.isoformat())),
    )
