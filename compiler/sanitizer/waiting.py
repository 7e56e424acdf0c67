"""Telling programs that wait for a later one from programs that work: they run one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import DeuteronError, Location
from ..ir.core import Block
from ..targets.interpreter.program import Held

#: Rounds of a loop that change nothing but look at memory, after which a program is taken to wait for another one.
MOST_ROUNDS = 1_000


class EndlessWait(DeuteronError):
    """A program waits for one that runs after it: programs run one after the other here."""


class LoopRounds:
    """Counts the rounds of a program's loops that begin as the round before did."""

    def __init__(self) -> None:
        #: By loop: what its last round began with, and how many in a row began with that.
        self._last: dict[int, tuple[Sequence[Held], int]] = {}

    def count(
        self, block: Block, arguments: Sequence[Held], kernel: str, program: tuple[int, int, int], at: Location | None
    ) -> None:
        """A round of the loop with ``block`` begins with ``arguments``; raises EndlessWait after MOST_ROUNDS alike."""
        before, rounds = self._last.get(id(block), ((), 0))
        same = len(before) == len(arguments) and all(
            np.array_equal(a.array, b.array) for a, b in zip(before, arguments, strict=True)
        )
        rounds = rounds + 1 if same else 0
        self._last[id(block)] = (arguments, rounds)
        if rounds > MOST_ROUNDS:
            raise EndlessWait(
                f"{kernel}: program {program} still waits at {at} after {MOST_ROUNDS} rounds of a loop that change "
                "nothing",
                hint="programs run one after the other here: a program cannot wait for a later one",
            )
