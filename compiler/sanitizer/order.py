"""Which programs of a launch have waited for each other, so that what they share is no race.

Programs know of each other through atomics only: one that releases (semantics ``release`` or ``acq_rel``) and a later
one that acquires at the same address and looks at what it got. The clocks are those of Flanagan and Freund, "FastTrack"
(PLDI 2009): a program's epoch counts its releases.
"""

from __future__ import annotations

import numpy as np

from ..ir.core import Function, Value, uses
from ..targets.interpreter.numbers import Array
from ..tile import memory as m

_ACQUIRE = ("acquire", "acq_rel")
_RELEASE = ("release", "acq_rel")

Clock = dict[int, int]


class Order:
    """The clocks of one launch; programs run one after the other."""

    def __init__(self, function: Function) -> None:
        #: Results that somebody reads: an atomic whose result nobody looks at waits for nothing.
        self._read: set[Value] = {value for value, by in uses(function).items() if by}
        self.tracked = any(self.acquires(op) for op in function.walk() if isinstance(op, m.AtomicRMW | m.AtomicCAS))
        self.epoch = 0
        self._clock: Clock = {}
        self._released: dict[int, Clock] = {}

    def begin(self) -> None:
        """The next program starts, and knows of no other."""
        self.epoch, self._clock = 0, {}

    def acquires(self, op: m.AtomicRMW | m.AtomicCAS) -> bool:
        """Whether what follows ``op`` may count on what others did before they released."""
        return op.semantics in _ACQUIRE and any(result in self._read for result in op.results)

    def atomic(self, op: m.AtomicRMW | m.AtomicCAS, addresses: Array, program: int) -> None:
        """``program`` runs ``op`` at ``addresses``."""
        if not self.tracked:
            return
        places = [int(address) for address in np.unique(addresses)]
        if self.acquires(op):
            for place in places:
                _join(self._clock, self._released.get(place, {}))
        if op.semantics in _RELEASE:
            self.epoch += 1
            for place in places:
                _join(self._released.setdefault(place, {}), {**self._clock, program: self.epoch})

    def before(self, programs: Array, epochs: Array) -> Array:
        """For each access of another program, by its epoch then, whether the current program comes after it."""
        known = [self._clock.get(int(p), 0) > e for p, e in zip(programs, epochs, strict=True)]
        return np.asarray(known, np.bool_)


def _join(clock: Clock, other: Clock) -> None:
    for program, epoch in other.items():
        clock[program] = max(epoch, clock.get(program, 0))
