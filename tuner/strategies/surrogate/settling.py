"""When a search may end by itself: hardly anything is expected of proposals, and for a while nothing came of them."""

from __future__ import annotations

from collections import deque

from .history import History

#: Expected improvement of the logarithm of the time, of so many proposals in a row, below which little is expected.
LITTLE, PROPOSALS = 3e-5, 5
#: A best time that is lower by less than this part is no gain; evaluations without one; evaluations at least.
GAIN, IDLE, LEAST = 0.005, 30, 20


class Settling:
    """Follows what was expected of proposals and what they gave."""

    def __init__(self) -> None:
        self._expected: deque[float] = deque(maxlen=PROPOSALS)

    def proposed(self, expected_gain: float | None) -> None:
        """Something was proposed of which the model expects so much; None where it was not asked."""
        if expected_gain is None:
            self._expected.clear()
        else:
            self._expected.append(expected_gain)

    def why(self, history: History) -> str | None:
        """In words why nothing more is to be won; None as long as there may be."""
        evaluations = len(history.told)
        if evaluations < LEAST or len(self._expected) < PROPOSALS or max(self._expected) >= LITTLE:
            return None
        idle = _since_gain([evaluation.time for evaluation in history.told])
        if idle < IDLE:
            return None
        return f"less than {100 * LITTLE:g} % is expected of any configuration, {idle} in a row won nothing"


def _since_gain(times: list[float | None]) -> int:
    """Evaluations since the last that was better than all before by more than :data:`GAIN`."""
    best, last = float("inf"), 0
    for number, time in enumerate(times, 1):
        if time is not None and time < best * (1 - GAIN):
            best, last = time, number
    return len(times) - last
