"""Numbers for places in profiles: GPU launches carry one, and its records come back with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .session import Target


class Correlations:
    """Maps sets of targets (one for each active session) to small numbers, and back.

    A number stands for a place, not for a launch: a kernel launched a million times in one scope has one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[tuple[tuple[int, bool], ...], int] = {}
        # Number 0 is never given out: it means that a launch carried none.
        self._targets: list[tuple[Target, ...]] = [()]

    def number_of(self, targets: Sequence[Target]) -> int:
        """The number of a set of targets, 0 for the empty set."""
        if not targets:
            return 0
        # The nodes stay alive in _targets, so their ids are not reused.
        key = tuple((id(target.node), target.is_launch) for target in targets)
        number = self._numbers.get(key)
        if number is None:
            with self._lock:
                number = self._numbers.setdefault(key, len(self._targets))
                if number == len(self._targets):
                    self._targets.append(tuple(targets))
        return number

    def targets_of(self, number: int) -> tuple[Target, ...]:
        """The targets of a number; none for a number that was not given out."""
        return self._targets[number] if 0 <= number < len(self._targets) else ()
