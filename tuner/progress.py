"""Showing a running search: a live view on a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TextIO

from deuteron.compiler.counting import counted
from deuteron.compiler.printable import printable, printable_line

from .events import (
    JobCancelled,
    JobFailed,
    JobFinished,
    JobStarted,
    ShapeFinished,
    ShapeStarted,
    TrialFinished,
    TuneEvent,
)
from .job import shape_key
from .measure.bounds import explain
from .measure.statistics import Interval
from .records import ConfigRecord
from .search_profile import config_label
from .time_text import duration_text, time_text
from .trial import Trial

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

RECENT = 6


class ProgressView(Protocol):
    """Takes a job's events; a context manager. Feed it as ``emit``."""

    def __call__(self, event: TuneEvent) -> None: ...

    def __enter__(self) -> ProgressView: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def progress_view(stream: TextIO | None = None) -> ProgressView:
    """A live view where ``stream`` (stdout) is a terminal, else plain lines."""
    stream = stream or sys.stdout
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)


def speedup_text(speedup: Interval) -> str:
    """``1.31x [1.29, 1.33]``; a narrow interval gets three digits: ``1.002x [0.998, 1.006]``."""
    digits = 2 if speedup.high - speedup.low > 0.02 else 3
    return f"{speedup.median:.{digits}f}x [{speedup.low:.{digits}f}, {speedup.high:.{digits}f}]"


def verdict_text(record: ConfigRecord) -> str:
    """``FASTER``, or why the default was kept: ``default kept: SAME, best challenger 1.002x [0.998, 1.006]``."""
    if record.verdict == "FASTER":
        return "FASTER"
    if record.challenger is None:
        return "default kept: no challenger"
    return f"default kept: {record.verdict}, best challenger {speedup_text(record.challenger)}"


def trial_text(trial: Trial) -> str:
    """One line about a trial."""
    outcome = trial.status if trial.time_ns is None else time_text(trial.time_ns.median)
    twin = trial.metrics.get("duplicate_of")
    if twin is not None:
        outcome += f" (same code as #{twin:.0f})"
    if trial.measurement is not None and trial.measurement.replay_ns is not None:
        outcome += f" (in a graph {time_text(trial.measurement.replay_ns.median)})"
    line = f"#{trial.number} {trial.phase} {outcome}  {config_label(trial.config)}"
    if trial.reason is not None:
        line += f"  [{trial.reason}]"
    bounds = None if trial.measurement is None else explain(trial.measurement)
    if bounds is not None:
        line += f"  ({bounds})"
    return line if trial.error is None else f"{line}  ({trial.error.splitlines()[0][:100]})"


def event_text(event: TuneEvent) -> str | None:
    """One line about an event; None for trials, which come in numbers."""
    match event:
        case JobStarted():
            shapes = counted(event.tasks, "shape")
            return f"tuning {event.kernel_name} on {event.device} with {event.strategy}: {shapes}"
        case ShapeStarted():
            size = "many configurations" if event.space_size is None else counted(event.space_size, "configuration")
            held = [f"\n  {name} changes no code here: tried as {value!r} only" for name, value in event.held.items()]
            known = [f"\n  starts from {name}" for name in event.known]
            return f"{shape_key(event.shape)} {event.dtype}: {size}{''.join(held)}{''.join(known)}"
        case TrialFinished():
            return None
        case ShapeFinished(record=record):
            ended = f"\n  ended after {counted(record.trials, 'trial')}: {event.settled}" if event.settled else ""
            started = "" if event.start is None else f"\n  {event.start.text}"
            doubt = "" if event.doubt is None else f"\n  warning: {event.doubt}"
            return f"{record.shape_key} {record.dtype}: {_record_text(record)}{started}{ended}{doubt}"
        case JobFinished():
            return f"finished after {duration_text(event.duration_s)}"
        case JobFailed():
            return f"failed: {event.error}" + (f"\nhint: {event.hint}" if event.hint else "")
        case JobCancelled():
            return "cancelled"


def _record_text(record: ConfigRecord) -> str:
    if record.verdict == "FASTER":
        return (
            f"{speedup_text(record.speedup)} over the default, {time_text(record.time_ns.median)}, "
            f"{config_label(record.config)}"
        )
    return f"{verdict_text(record)}, {time_text(record.time_ns.median)}"


class PlainProgress:
    """Lines for logs: every event but trials, and the trials that became the incumbent."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: TuneEvent) -> None:
        text = event_text(event)
        if isinstance(event, TrialFinished):
            if event.incumbent == event.trial.id and event.trial.phase == "screen":
                text = f"  best so far: {trial_text(event.trial)}"
            elif event.trial.status != "ok":
                text = f"  {trial_text(event.trial)}"
        if text is not None:
            print(printable(text), file=self._stream, flush=True)

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class LiveProgress:
    """A progress bar, the incumbent and the latest trials, redrawn in place."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._console: Console = Console(file=stream, markup=False, emoji=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), Elapsed()
        )
        self._live = Live(console=self._console, refresh_per_second=8)
        self._bar = self._progress.add_task("waiting", total=None)
        self._budget: int | None = None
        self._trials: list[Trial] = []

    def __call__(self, event: TuneEvent) -> None:
        match event:
            case JobStarted():
                self._budget = event.trials
            case ShapeStarted():
                self._trials = []
                limits = [n for n in (self._budget, event.space_size) if n is not None]
                self._progress.reset(
                    self._bar,
                    description=printable(f"{shape_key(event.shape)} {event.dtype}"),
                    total=min(limits) if limits else None,
                )
            case TrialFinished(trial=trial):
                self._trials.append(trial)
                if trial.phase == "screen":
                    self._progress.advance(self._bar)
            case _:
                pass
        text = event_text(event)
        if text is not None:
            self._live.console.print(printable(text), highlight=False)
        better = isinstance(event, TrialFinished) and event.incumbent == event.trial.id
        self._live.update(self._view(), refresh=better)

    def __enter__(self) -> LiveProgress:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.update("")
        self._live.__exit__(kind, error, trace)

    def _view(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 1))
        for heading in ("trial", "phase", "time", "bound by", "configuration", "why"):
            table.add_column(heading, no_wrap=heading == "why", overflow="ellipsis" if heading == "why" else "fold")
        screened = [t for t in self._trials if t.time_ns is not None and t.phase == "screen"]
        best = min(screened, key=_median, default=None)
        for trial in ([best] if best else []) + self._trials[-RECENT:]:
            outcome = trial.status if trial.time_ns is None else time_text(trial.time_ns.median)
            style = "bold green" if trial is best else "red" if trial.status != "ok" else ""
            number = f"best #{trial.number}" if trial is best else f"#{trial.number}"
            bound = (trial.measurement and trial.measurement.bound) or ""
            config, why = config_label(trial.config), trial.reason or ""
            cells = (number, trial.phase, outcome, bound, config, why)
            table.add_row(*(Text(printable_line(cell)) for cell in cells), style=style)
        return Group(self._progress, table)


def summary_rows(records: Sequence[ConfigRecord]) -> list[dict[str, str]]:
    """The result of a job as text, a row per shape: shape, dtype, default time, best time, speed-up, verdict,
    configuration."""
    return [
        {
            "shape": record.shape_key,
            "dtype": record.dtype,
            "default": time_text(record.default_time_ns.median),
            "best": time_text(record.time_ns.median),
            "speed-up": speedup_text(record.speedup) if record.verdict == "FASTER" else "1.00x",
            "verdict": verdict_text(record),
            "configuration": config_label(record.config),
        }
        for record in records
    ]


def summary_table(records: Sequence[ConfigRecord], title: str | None = None) -> Table:
    """:func:`summary_rows` as a rich table. Title and cells are text as it is, no markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=None if title is None else Text(printable_line(title)))
    rows = summary_rows(records)
    for heading in rows[0] if rows else ("shape", "dtype", "default", "best", "configuration"):
        right = heading in ("default", "best", "speed-up")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading == "shape")
    for row in rows:
        table.add_row(*(Text(printable_line(cell)) for cell in row.values()))
    return table


def summary_text(records: Sequence[ConfigRecord]) -> str:
    """:func:`summary_rows` as aligned plain text."""
    rows = summary_rows(records)
    if not rows:
        return "no records\n"
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    lines = ["  ".join(name.ljust(width) for name, width in widths.items()).rstrip()]
    lines += ["  ".join(row[name].ljust(width) for name, width in widths.items()).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def _median(trial: Trial) -> float:
    return trial.time_ns.median if trial.time_ns is not None else float("inf")
