"""Searches of one kernel that run side by side: what each of them measures serves the others.

Workers that begin a kernel at once all begin with nothing, and would all measure the same poor configurations. A search
that knows nothing from its own device and text therefore asks again while it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future

from .start import Start

#: After so many screened configurations it is asked again.
EVERY = 8
#: With so many configurations of others a search begins anew, and again with so many times as many.
LEAST, GROWTH = 12, 1.5


class Companions:
    """``ask`` begins to find out what a search would start from now, None if fewer configurations than it is told are
    known for its device and text; ``start``: what the search did start from."""

    def __init__(self, ask: Callable[[int], Future[Start | None]], start: Start | None) -> None:
        self._ask = ask
        self._wanted = LEAST
        self._asking = start is None or not start.same_device
        self._asked_at = 0
        self._answer: Future[Start | None] | None = None

    def news(self, screened: int, *, wait: bool) -> Start | None:
        """A start that knows more than the one before, for a search that has screened so many configurations; None
        where there is none, or, unless it shall ``wait``, while it is asked for."""
        if self._asking and self._answer is None and screened >= self._asked_at + EVERY:
            self._asked_at, self._answer = screened, self._ask(self._wanted)
        if self._answer is None or not (wait or self._answer.done()):
            return None
        start, self._answer = self._answer.result(), None
        if start is None or start.known_here < self._wanted:
            return None
        self._wanted = math.ceil(GROWTH * start.known_here)
        return start
