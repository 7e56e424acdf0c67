"""How many proposals are compiled ahead of the one that is measured.

Each was made without knowing what those before it will say, so they are as few as keep the device busy: one that is
measured, as many more as are measured while one compiles, and one for those that compile longer.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

#: Most proposals for each compile process: one that compiles, one that waits.
AHEAD = 2
#: As long as nothing is known; the first measurement begins when inputs are made and a result is there to compare with.
FIRST = 8
#: Trials of which the median is taken, and those that must be known.
REMEMBERED, LEAST = 9, 2


@dataclass
class Pace:
    """Follows how long compiling and measuring take; ``workers``: compile processes."""

    workers: int
    _compiling: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _measuring: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def note(self, compile_s: float, measure_s: float) -> None:
        """A proposal took so many seconds to compile, and to be checked and timed."""
        self._compiling.append(compile_s)
        self._measuring.append(measure_s)

    @property
    def measuring(self) -> float:
        """Seconds that a proposal takes on the device of late; 0 as long as nothing is known."""
        return statistics.median(self._measuring) if self._measuring else 0.0

    @property
    def ahead(self) -> int:
        """Proposals that may wait for the device, compiling or compiled."""
        most = AHEAD * self.workers
        if len(self._measuring) < LEAST:
            return min(FIRST, most)
        longer = statistics.median(self._compiling) / max(self.measuring, 1e-9)
        return min(min(math.ceil(longer), self.workers) + 2, most)
