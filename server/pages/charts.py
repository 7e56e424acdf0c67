"""What the charts and the table of a job's page begin with; from there the page follows the job's events.

It reads as much of a job of a million trials as of one of two thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
from fastapi import APIRouter, Response

from deuteron.tuner.codec import Document, decode
from deuteron.tuner.trial import Trial

from ..auth import Reader
from ..context import ContextDep
from ..store import StoredTrial
from .format import settings_text

router = APIRouter(include_in_schema=False)

#: Points of all searches of a job together: more could not be told apart.
MOST_POINTS = 2000
#: Rows of the table of trials.
SHOWN_TRIALS = 200
_MOST_BEST, _MOST_FINALS = 4000, 500


class Point(Document, frozen=True):
    """A screened trial or a finalist; ``flop_s`` and ``byte_s`` where its measurement has them."""

    id: str
    search: str
    number: int
    phase: str
    best: bool
    ns: float
    config: str
    flop_s: float | None
    byte_s: float | None


class Row(Document, frozen=True):
    """A trial in the table."""

    id: str
    sequence: int
    shape: str
    dtype: str
    phase: str
    status: str
    ns: float | None
    bound: str | None
    config: str
    error: str | None


class Roof(Document, frozen=True):
    """The most operations and bytes a second that the device can do with values of ``dtype``."""

    dtype: str
    flop_s: float
    byte_s: float


class Charts(Document, frozen=True):
    """``points``: all trials with a time, or :data:`MOST_POINTS` of them, evenly spaced, with all that were the best of
    their search and all finalists. ``rows``: the newest trials. ``after``: the last event that these include."""

    after: int
    trials: int
    screened: int
    points: list[Point]
    rows: list[Row]
    roofs: list[Roof]


@router.get("/jobs/{job_id}/charts")
def job_charts(job_id: str, context: ContextDep, _reader: Reader) -> Response:
    """The beginning of a job's page."""
    with context.store.read() as tx:
        # The job first: the events after this moment tell what the trials may have already, never less.
        job = tx.jobs.get(job_id)
        drawn = [
            *tx.trials.sample(job_id, at_most=MOST_POINTS),
            *tx.trials.best(job_id, limit=_MOST_BEST),
            *tx.trials.newest(job_id, phase="final", limit=_MOST_FINALS),
        ]
        newest = tx.trials.newest(job_id, limit=SHOWN_TRIALS)
    timed = {stored.sequence: stored for stored in drawn if stored.median_ns is not None and stored.phase != "race"}
    trials = [(timed[sequence], decode(timed[sequence].body, Trial, "trial")) for sequence in sorted(timed)]
    charts = Charts(
        after=job.last_event,
        trials=job.trials_done,
        screened=job.screened,
        points=[_point(stored, trial) for stored, trial in trials],
        rows=[_row(stored) for stored in newest],
        roofs=_roofs(trials),
    )
    return Response(msgspec.json.encode(charts), media_type="application/json", headers={"Cache-Control": "no-store"})


def _point(stored: StoredTrial, trial: Trial) -> Point:
    measured = trial.measurement
    return Point(
        id=stored.trial_id,
        search=f"{settings_text(json.loads(stored.shape))} {stored.dtype}",
        number=trial.number,
        phase=stored.phase,
        best=stored.best,
        ns=stored.median_ns or 0.0,
        config=settings_text(trial.config),
        flop_s=None if measured is None else measured.flop_s,
        byte_s=None if measured is None else measured.byte_s,
    )


def _row(stored: StoredTrial) -> Row:
    trial = decode(stored.body, Trial, "trial")
    return Row(
        id=stored.trial_id,
        sequence=stored.sequence,
        shape=settings_text(json.loads(stored.shape)),
        dtype=stored.dtype,
        phase=stored.phase,
        status=stored.status,
        ns=stored.median_ns,
        bound=stored.bound,
        config=settings_text(trial.config),
        error=trial.error,
    )


def _roofs(trials: Iterable[tuple[StoredTrial, Trial]]) -> list[Roof]:
    """The peaks that the shares of the measurements are of, for each dtype; none where no peak is known."""
    found: dict[str, Roof] = {}
    for stored, trial in trials:
        measured = trial.measurement
        if measured is not None and measured.compute_share and measured.memory_share:
            peaks = measured.flop_s / measured.compute_share, measured.byte_s / measured.memory_share
            found.setdefault(stored.dtype, Roof(stored.dtype, *peaks))
    return list(found.values())
