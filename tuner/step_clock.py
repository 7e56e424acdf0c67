"""Where the seconds of a search go that are not those of a trial."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: What a search does between trials, as its profile calls it: it finds out what others know and starts processes,
#: chooses configurations, waits for the first that is compiled, and measures where else the best one is right.
BEGIN, PROPOSE, COMPILE, LARGER, END = "begin", "propose", "wait for compilers", "larger shapes", "end"


class StepClock:
    """Host seconds by what they were spent on, in ``seconds``. Of one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside: list[float] = []  # of each step under way, what steps inside it took

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count what is done here as ``name``, but for steps inside, which count as theirs."""
        began = time.monotonic()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inside.pop()
            if self._inside:
                self._inside[-1] += took
