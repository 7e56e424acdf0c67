"""When a search may end by itself: what is expected of proposals is little for how long nothing has come of them."""

from __future__ import annotations

import statistics
from collections import deque

from .history import History

#: The expected improvement of the logarithm of the time is the mean of this many proposals in a row: that of one jumps
#: by decades.
PROPOSALS = 10
#: A search may end when as much or less is expected for each that worked since the last gain, and one more. Small
#: expectations are the less true the smaller they are: where 4e-6 was expected of proposals on recorded spaces, they
#: won 6e-5. So expectations alone end searches too early, and waiting alone ends all of them at the same time.
PATIENCE = 2e-6
#: A best time that is lower by less than this part is no gain. So many evaluations that worked at least: what is
#: expected is a part of how much their times differ, which few of them do not show, and one not at all.
GAIN, LEAST = 0.005, 20


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
        times = [evaluation.time for evaluation in history.told if evaluation.time is not None]
        if len(times) < LEAST or len(self._expected) < PROPOSALS:
            return None
        idle = _since_gain(times)
        expected = statistics.fmean(self._expected)
        if expected > PATIENCE * (1 + idle):
            return None
        return f"{100 * expected:.1g} % is expected of a configuration, {idle} that worked in a row won nothing"


def _since_gain(times: list[float]) -> int:
    """How many came since the last that was better than all before by more than :data:`GAIN`."""
    best, last = float("inf"), 0
    for number, time in enumerate(times, 1):
        if time < best * (1 - GAIN):
            best, last = time, number
    return len(times) - last
