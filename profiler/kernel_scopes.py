"""What kernels recorded, as frames of a tree and as spans of a trace.

A record names its scope and thereby the scopes around it, so a beginning that was lost takes only its own scope away.

Between two records of a track is what the kernel did, and what one record takes: the rest of the first one and the
beginning of the second. Where it was measured that is taken out of the times, and what follows moves up.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deuteron.compiler.runtime.launch.records import LaunchRecords, RecordedMark, Track

from .session import ProfileTarget
from .timeline import Timeline


@dataclass(frozen=True, slots=True)
class Span:
    """One run of a scope in a track, in ticks since the track's first; ``own`` is without the scopes inside."""

    scope: int
    begin: int
    end: int
    own: int


def spans_of(track: Track, record_ticks: int = 0) -> Iterator[Span]:
    """The scopes whose beginning and end are both there, in the order of their ends, as if a record, which took
    ``record_ticks``, took no time."""
    # Each open scope, when it began and what scopes inside it took. Those before the first record ended unseen.
    open_: list[tuple[int, int, int]] = []
    for mark in _shifted(track.marks, record_ticks):
        if mark.enter:
            open_.append((mark.scope, mark.clock, 0))
        elif open_ and open_[-1][0] == mark.scope:
            scope, begin, inside = open_.pop()
            taken = mark.clock - begin
            if open_:
                outer, at, before = open_[-1]
                open_[-1] = outer, at, before + taken
            yield Span(scope, begin, mark.clock, taken - inside)


def _shifted(marks: Iterable[RecordedMark], record_ticks: int) -> Iterator[RecordedMark]:
    """``marks`` with ``record_ticks`` less between neighbours, but not less than nothing."""
    before, shift = None, 0
    for mark in marks:
        if before is not None:
            shift += min(record_ticks, mark.clock - before)
        before = mark.clock
        yield RecordedMark(mark.scope, mark.enter, mark.clock - shift)


def warn_of_losses(kernel: str, records: LaunchRecords) -> None:
    """Say that rings or clocks were too short, if they were."""
    if records.lost:
        warnings.warn(
            f"{kernel}: {records.lost} records inside the kernel were lost, the newest of each warp were kept; a "
            "larger buffer_size keeps more",
            RuntimeWarning,
            stacklevel=2,
        )
    if records.doubtful:
        warnings.warn(
            f"{kernel}: in {records.doubtful} warps more time passed than records of 32 bits can tell, their times may "
            "be wrong; leave optimizations=clock32 out",
            RuntimeWarning,
            stacklevel=2,
        )


def add_to_tree(target: ProfileTarget, records: LaunchRecords, kind: str, device: int) -> None:
    """Add a launch's cycles below its frame at ``target``: of each scope those of its own, of all tracks together, as
    viewers sum over subtrees; normalised, those of a track on average."""
    cycles: Counter[int] = Counter()
    for track in records.tracks:
        for span in spans_of(track, records.record_ticks):
            cycles[span.scope] += span.own
    profile = target.phase.profile
    profile.device(kind, device)
    target.node  # noqa: B018 - the kernel's frame is there even if nothing was recorded
    for number in sorted(cycles):
        profile.add(
            (*target.path, *records.scopes[number]),
            {
                "cycles": cycles[number],
                "normalized_cycles": cycles[number] / records.all_tracks,
                "device_id": str(device),
                "device_type": kind,
            },
        )
    if records.lost:
        profile.add_to(target.node, {"lost_records": records.lost})


def add_to_trace(
    timeline: Timeline, target: ProfileTarget, records: LaunchRecords, kernel: str, began_ns: int | None
) -> None:
    """Add a launch's scopes as spans, in a lane for each track. The first track began at ``began_ns`` of
    ``time.perf_counter_ns``; None: the last one ended now."""
    if not records.tracks:
        return
    rate = records.ticks_per_ns or _rate(records)
    starts = {track: _start_ns(track, rate) for track in records.tracks}
    first = min(starts.values())
    if began_ns is None:
        last = max(start + (track.last_clock - track.first_clock) / rate for track, start in starts.items())
        began_ns = time.perf_counter_ns() - round(last - first)
    for track, start in starts.items():
        moved = began_ns + start - first
        lane = f"{kernel} program {track.program}" + (f" warp {track.warp}" if records.warps > 1 else "")
        for span in spans_of(track, records.record_ticks):
            timeline.add_span(
                (*target.path, *records.scopes[span.scope]),
                round(moved + span.begin / rate),
                round(moved + span.end / rate),
                category="kernel",
                metrics={"cycles": span.end - span.begin, "processor": track.sm, "lost_records": track.lost},
                lane=lane,
            )


def _rate(records: LaunchRecords) -> float:
    """Ticks per ns: what clocks and timers of all tracks counted. 1 where timers are too coarse to tell."""
    ticks = sum(track.last_clock - track.first_clock for track in records.tracks)
    spent = sum(track.last_ns - track.first_ns for track in records.tracks)
    return ticks / spent if ticks > 0 and spent > 0 else 1.0


def _start_ns(track: Track, rate: float) -> float:
    return float(track.first_ns) if track.first_ns else track.first_clock / rate
