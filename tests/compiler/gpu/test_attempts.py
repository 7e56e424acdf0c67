"""What is tried next where a kernel does not fit."""

from __future__ import annotations

import itertools

import pytest

from deuteron.compiler.gpu.attempts import AttemptLimits, Fits, TooLarge, next_limits, next_warps, spills_less
from deuteron.compiler.gpu.estimates import FEW_WARPS, MOST_WARPS, MUCH_SPILLED


@pytest.mark.parametrize(
    ("limits", "outcome", "following"),
    [
        # Waits first, whatever rings there are; then slots, of those that there were and not of those that might be.
        (AttemptLimits(), TooLarge(4, True), AttemptLimits(spare_waits=False)),
        (AttemptLimits(), TooLarge(0, True), AttemptLimits(spare_waits=False)),
        (AttemptLimits(spare_waits=False), TooLarge(4, False), AttemptLimits(3, spare_waits=False)),
        (AttemptLimits(), TooLarge(4, False), AttemptLimits(3)),
        (AttemptLimits(3), TooLarge(3, False), AttemptLimits(2)),
        (AttemptLimits(1), TooLarge(1, False), AttemptLimits(0)),
        (AttemptLimits(0), TooLarge(0, False), None),
        (AttemptLimits(), TooLarge(0, False), None),
        # What fits is taken, but that it makes way once.
        (AttemptLimits(), Fits(None), None),
        (AttemptLimits(3, spare_waits=False), Fits(None), None),
        (AttemptLimits(), Fits(2), AttemptLimits(2, make_way=False)),
        (AttemptLimits(5, spare_waits=False), Fits(3), AttemptLimits(3, spare_waits=False, make_way=False)),
        (AttemptLimits(3, make_way=False), Fits(2), None),
        (AttemptLimits(3, make_way=False), TooLarge(3, False), AttemptLimits(2, make_way=False)),
        (AttemptLimits(3, make_way=False), TooLarge(3, True), AttemptLimits(3, spare_waits=False, make_way=False)),
    ],
)
def test_next_limits(limits: AttemptLimits, outcome: TooLarge | Fits, following: AttemptLimits | None) -> None:
    assert next_limits(limits, outcome) == following


def outcomes(limits: AttemptLimits) -> list[TooLarge | Fits]:
    """All that an attempt under ``limits`` may lead to."""
    slots, waits = range(limits.slots + 1), (False, True) if limits.spare_waits else (False,)
    too_large = [TooLarge(some, spared) for some, spared in itertools.product(slots, waits)]
    return [*too_large, Fits(None), *(Fits(fewer) for fewer in range(2, limits.slots))]


def test_attempts_come_to_an_end() -> None:
    """Each has less than the one before, whatever became of that."""
    for slots, waits, way in itertools.product(range(7), (False, True), (False, True)):
        limits = AttemptLimits(slots, waits, way)
        for outcome in outcomes(limits):
            following = next_limits(limits, outcome)
            if following is not None:
                given, left = ((one.slots, one.spare_waits, one.make_way) for one in (limits, following))
                assert left != given and all(now <= before for now, before in zip(left, given, strict=True))


@pytest.mark.parametrize(
    ("warps", "spilled", "following"),
    [
        (1, 0, None),
        (1, 1, 2),
        (FEW_WARPS, 1, 2 * FEW_WARPS),
        (2 * FEW_WARPS, MUCH_SPILLED, None),
        (2 * FEW_WARPS, MUCH_SPILLED + 1, 4 * FEW_WARPS),
        (MOST_WARPS // 2, MUCH_SPILLED + 1, MOST_WARPS),
        (MOST_WARPS, 100 * MUCH_SPILLED, None),
    ],
)
def test_next_warps(warps: int, spilled: int, following: int | None) -> None:
    assert next_warps(warps, spilled) == following


@pytest.mark.parametrize(("spilled", "before", "taken"), [(0, 1, True), (50, 100, True), (51, 100, False)])
def test_twice_the_warps_have_to_spill_half(spilled: int, before: int, taken: bool) -> None:
    assert spills_less(spilled, before) == taken
