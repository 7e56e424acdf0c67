"""What a proposal says of itself: how much is expected of it, and nothing where nothing is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deuteron.tuner.strategies.surrogate.model import Prospect
from deuteron.tuner.strategies.surrogate.reasons import improvement

CHANGE = [("BLOCK", 64, 128)]


def prospect(probability: float, gain: float, variance: float = 0.1) -> Prospect:
    """A configuration that is faster by ``gain`` with ``probability``."""
    return Prospect(np.zeros(1, np.int16), probability * -math.log1p(-gain), probability, variance, 0.7)


@pytest.mark.parametrize(
    ("probability", "gain", "said"),
    [
        (0.3, 0.041, "expected 4.1 % better (p=0.3): BLOCK 64->128 beside the best"),
        (0.5, 0.25, "expected 25 % better (p=0.5): BLOCK 64->128 beside the best"),
        (1.5e-5, 0.046, "expected no gain (p=1.5e-05): BLOCK 64->128 beside the best"),
        (0.0, 0.5, "expected no gain (p=0): BLOCK 64->128 beside the best"),
        (0.5, 2e-4, "expected 0.0 % better (p=0.5): BLOCK 64->128 beside the best"),
        (0.5, 4e-10, "no two times differ so far: BLOCK 64->128 beside the best"),  # what one time makes of the model
    ],
)
def test_what_is_expected(probability: float, gain: float, said: str) -> None:
    assert improvement(prospect(probability, gain), CHANGE) == said


def test_what_it_does_about_the_bound_of_the_best_and_where_it_lies() -> None:
    assert "better (p=0.2), fewer registers: BLOCK 64->128" in improvement(
        prospect(0.2, 0.1), CHANGE, "fewer registers"
    )
    many = [(f"P{i}", 1, 2) for i in range(5)]
    assert improvement(prospect(0.2, 0.1), many).endswith("5 changes from the best")
    assert improvement(prospect(0.2, 0.1, variance=0.9), many).endswith("unexplored region")
