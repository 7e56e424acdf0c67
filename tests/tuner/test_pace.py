"""How far ahead of the device a search compiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.tuner.pace import AHEAD, FIRST, LEAST, Pace


@pytest.mark.parametrize(
    ("workers", "compile_s", "measure_s", "ahead"),
    [
        (16, 0.75, 0.25, 5),  # three are measured while one compiles
        (16, 0.05, 0.25, 3),
        (16, 3.0, 0.01, 18),  # all compile, and one waits
        (2, 3.0, 0.01, 4),
        (2, 0.1, 0.2, 3),
        (1, 1.0, 1.0, 2),
    ],
)
def test_as_many_as_are_measured_while_one_compiles(
    workers: int, compile_s: float, measure_s: float, ahead: int
) -> None:
    pace = Pace(workers)
    assert pace.ahead == min(FIRST, AHEAD * workers)
    for _ in range(LEAST):
        pace.note(compile_s, measure_s)
    assert pace.ahead == ahead


def test_one_slow_start_is_no_rule() -> None:
    pace = Pace(16)
    pace.note(30.0, 5.0)
    for _ in range(9):
        pace.note(0.5, 0.25)
    assert pace.ahead == 4


@given(st.integers(1, 64), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0))
def test_the_device_never_waits_where_compiling_keeps_up(workers: int, compile_s: float, measure_s: float) -> None:
    """With as many in flight a compilation has begun so long before its turn that it is over by then."""
    pace = Pace(workers)
    for _ in range(LEAST):
        pace.note(compile_s, measure_s)
    assert 2 <= pace.ahead <= max(2, AHEAD * workers)
    if compile_s <= (workers - 1) * measure_s:
        others = pace.ahead - 1  # measured one after the other before the newest
        assert others * measure_s >= min(compile_s, (AHEAD * workers - 1) * measure_s)
