"""When the silence of a worker counts. A lease ends at a time of day, and that passes as well while nobody could have
heard its worker: the server was down, the machine slept, somebody set the clock."""

from __future__ import annotations

import time
from collections.abc import Callable


class LeaseClock:
    """Says whether leases may be judged: only after a whole lease in which this process was there and the clock went
    evenly."""

    def __init__(
        self, lease_s: float, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease_s = lease_s
        self._wall, self._steady = wall, steady
        self.begin()

    def begin(self) -> None:
        """From now on workers can be heard."""
        self._looked_at = self._wall()
        self._judges_at = self._steady() + self._lease_s

    def judges(self) -> bool:
        """Whether a lease that is over says that its worker is silent. Ask it several times a lease."""
        wall = self._wall()
        if wall - self._looked_at > self._lease_s / 2:
            self.begin()
        self._looked_at = wall
        return self._steady() >= self._judges_at
