"""Numbers for places in profiles: GPU launches carry one, and its records come back with it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from .session import ProfileTarget


class Correlations:
    """Maps sets of targets (one for each active session) to small numbers, and back.

    A number stands for a place, not for a launch: a kernel launched a million times in one scope has one. Only a launch
    whose own metrics a trace will show has a number of its own. Numbers are not used twice in a process: a thread may
    still carry one of a profiler that has ended. 0 is no number.
    """

    _lock = threading.RLock()  # a signal may come to the thread that holds it
    _issued = 0

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[int, tuple[str, ...], bool], ...], int] = {}
        self._targets: dict[int, tuple[ProfileTarget, ...]] = {}
        self._metrics: dict[int, Mapping[str, object]] = {}

    def number_of(self, targets: Sequence[ProfileTarget]) -> int:
        """The number of a set of targets. The empty set has one, too: launches that no session wants carry it."""
        # The phases stay alive in _targets, so their ids are not reused.
        key = tuple((id(target.phase), target.path, target.is_launch) for target in targets)
        number = self._numbers.get(key)
        if number is None:
            with self._lock:
                number = self._numbers.get(key)
                if number is None:
                    number = self._numbers[key] = self._issue(targets)
        return number

    def number_of_launch(self, targets: Sequence[ProfileTarget], metrics: Mapping[str, object]) -> int:
        """A number for one launch: of a set of targets that is not empty, and the metrics of this launch alone."""
        with self._lock:
            number = self._issue(targets)
            self._metrics[number] = metrics
        return number

    def _issue(self, targets: Sequence[ProfileTarget]) -> int:
        Correlations._issued += 1
        self._targets[Correlations._issued] = tuple(targets)
        return Correlations._issued

    def targets_of(self, number: int) -> tuple[ProfileTarget, ...] | None:
        """The targets of a number; None for a number that was not given out here."""
        return self._targets.get(number)

    def metrics_of(self, number: int) -> Mapping[str, object] | None:
        """The metrics of the one launch that a number stands for; None for a place."""
        return self._metrics.get(number)
