from __future__ import annotations

import io
import subprocess
import sys

import pytest
from msgspec.structs import replace
from rich.console import Console

from deuteron.tuner import progress_view, summary_rows, summary_table, summary_text
from deuteron.tuner.events import (
    JobFailed,
    JobFinished,
    JobStarted,
    ShapeFinished,
    ShapeStarted,
    TrialFinished,
    TuneEvent,
)
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.progress import LiveProgress, PlainProgress, event_text, trial_text
from deuteron.tuner.time_text import duration_text, time_text
from deuteron.tuner.trial import Trial

SHAPE = {"M": 64, "N": 32}


def trial(number: int, us: float | None, error: str | None = None) -> Trial:
    time = None if us is None else Interval(us * 1e3, us * 1e3, us * 1e3, 7)
    status = "ok" if us is not None else "compile_error"
    config = {"BLOCK": 2**number}
    return Trial(number, config, status, "screen", time, error, id=f"trial-{number}")


@pytest.fixture
def events(make_record) -> list[TuneEvent]:  # type: ignore[no-untyped-def]
    return [
        JobStarted("softmax_kernel", "cpu/epyc", "random", 1, 20, None),
        ShapeStarted(SHAPE, "f32", 25),
        TrialFinished(SHAPE, "f32", trial(0, 12.5), "trial-0"),
        TrialFinished(SHAPE, "f32", trial(1, None, "line 3: no\nmore"), "trial-0"),
        TrialFinished(SHAPE, "f32", trial(2, 8.25), "trial-2"),
        TrialFinished(SHAPE, "f32", trial(3, 9.0), "trial-2"),
        ShapeFinished(make_record(SHAPE)),
        JobFinished(("r",), 3.25),
    ]


def test_what_is_tried_once_is_said() -> None:
    started = ShapeStarted(SHAPE, "f32", 25, held={"num_stages": 3, "num_warps": 4})
    assert (event_text(started) or "").splitlines() == [
        "M=64,N=32 f32: 25 configurations",
        "  num_stages changes no code here: tried as 3 only",
        "  num_warps changes no code here: tried as 4 only",
    ]
    twin = replace(trial(3, 9.0), metrics={"duplicate_of": 1.0})
    assert trial_text(twin) == "#3 screen 9 us (same code as #1)  BLOCK=8"
    reasoned = replace(trial(3, 9.0), reason="spread-out start")
    assert trial_text(reasoned) == "#3 screen 9 us  BLOCK=8  [spread-out start]"


def test_plain_lines_where_there_is_no_terminal(events: list[TuneEvent]) -> None:
    stream = io.StringIO()
    with progress_view(stream) as view:
        assert isinstance(view, PlainProgress)
        for event in events:
            view(event)
    assert stream.getvalue().splitlines() == [
        "tuning softmax_kernel on cpu/epyc with random: 1 shape",
        "M=64,N=32 f32: 25 configurations",
        "  best so far: #0 screen 12.5 us  BLOCK=1",
        "  #1 screen compile_error  BLOCK=2  (line 3: no)",
        "  best so far: #2 screen 8.25 us  BLOCK=4",
        "M=64,N=32 f32: 1.50x [1.48, 1.52] over the default, 1 us, BLOCK=128 num_warps=4",
        "finished after 3.2 s",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_view_on_a_terminal(events: list[TuneEvent]) -> None:
    stream = Terminal()
    with progress_view(stream) as view:
        assert isinstance(view, LiveProgress)
        for event in events:
            view(event)
    shown = stream.getvalue()
    assert "M=64,N=32 f32" in shown and "best #2" in shown and "1.50x [1.48, 1.52]" in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_names_from_elsewhere_are_printed_as_they_are(make_record, terminal: bool) -> None:  # type: ignore[no-untyped-def]
    """Markup is none, and what a terminal would obey is an escape."""
    name, shown_name = "[/x]:smile:\x1b]0;t\x07", r"[/x]:smile:\x1b]0;t\x07"
    odd = replace(trial(1, 9.0), config={name: name}, reason=name)
    stream = Terminal() if terminal else io.StringIO()
    with progress_view(stream) as view:
        view(JobStarted(name, "cpu/epyc", "random", 1, 20, None))
        view(ShapeStarted({name: 1}, name, 25))
        view(TrialFinished({name: 1}, name, odd, odd.id))
        view(JobFailed(name, name))
    text = stream.getvalue()
    assert "\x1b]0;" not in text and "\x07" not in text
    assert text.count("[/x]:smile:") >= 5 and f"tuning {shown_name} on" in text

    table = io.StringIO()
    Console(file=table, width=200).print(summary_table([make_record({"n": 1}, dtype=name)], f"{name}\n"))
    lines = table.getvalue().splitlines()
    assert lines[0].strip() == rf"{shown_name}\n" and any(shown_name in line for line in lines[2:])
    assert "\x1b" not in table.getvalue()


def test_failure_shows_the_hint() -> None:
    stream = io.StringIO()
    with progress_view(stream) as view:
        view(JobFailed("no device [bold]", "use cpu"))
    assert stream.getvalue() == "failed: no device [bold]\nhint: use cpu\n"


def test_summary(make_record) -> None:  # type: ignore[no-untyped-def]
    kept = replace(
        make_record({"n": 4}),
        verdict="AMBIGUOUS",
        speedup=Interval(1, 1, 1, 9),
        config={"BLOCK": 64, "num_warps": 4},
    )
    rows = summary_rows([make_record({"n": 2}), kept])
    assert rows[0] == {
        "shape": "n=2",
        "dtype": "f32",
        "default": "1.5 us",
        "best": "1 us",
        "speed-up": "1.50x [1.48, 1.52]",
        "verdict": "FASTER",
        "configuration": "BLOCK=128 num_warps=4",
    }
    assert (rows[1]["speed-up"], rows[1]["verdict"]) == ("1.00x", "default kept: no challenger")
    beaten = replace(kept, verdict="SAME", challenger=Interval(1.0021, 0.998, 1.0062, 99))
    said = "default kept: SAME, best challenger 1.002x [0.998, 1.006]"
    assert summary_rows([beaten])[0]["verdict"] == said
    assert event_text(ShapeFinished(beaten)) == f"n=4 f32: {said}, 1 us"
    lines = summary_text([kept]).splitlines()
    assert lines[0].startswith("shape  dtype  default") and "BLOCK=64" in lines[1]
    assert summary_text([]) == "no records\n"
    assert summary_table([kept]).row_count == 1 and summary_table([]).row_count == 0


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0.5, "0.5 ns"), (999, "999 ns"), (1500, "1.5 us"), (123456, "123 us"), (2.5e9, "2.5 s"), (3e12, "3000 s"),
        (999.4, "999 ns"), (999.7, "1000 ns"), (999_499, "999 us"), (999_700, "1000 us"), (999.7e9, "1000 s"),
    ],
)  # fmt: skip
def test_times(ns: float, text: str) -> None:
    assert time_text(ns) == text


def test_importing_the_tuner_is_light() -> None:
    """Neither heavy libraries nor the web and database packages come with the tuner's public names."""
    program = """
import sys
import deuteron.tuner as t
t.Space, t.run_job, t.resolve_workload, t.tuned, t.lookup, t.progress_view
heavy = "numpy llvmlite rich optuna pandas fastapi sqlalchemy alembic distributed httpx plotly".split()
print([name for name in heavy if name in sys.modules])
"""
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (3.2, "3.2 s"), (45.4, "45 s"), (60, "1 min"), (3599, "59 min"), (7300, "2 h"), (200000, "2 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
