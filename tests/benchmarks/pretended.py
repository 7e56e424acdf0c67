"""Services for a contest without compiler and GPU; block sizes say what goes wrong. Child processes import it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from candidates import Candidate
from isolated import FatalInChild
from timing import Timing

#: Block sizes, each with what it does; all others take 1000 us over their size.
NO_COMPILE, CRASHES, DIES, HANGS, WRONG, HANGS_TIMED = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class Sum:
    """A problem without content."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def specialised(self) -> tuple[object, ...]:
        return ()

    @property
    def operations(self) -> float:
        return 1e9


class Compiler:
    def __init__(self, announce: Callable[[str], None]) -> None:
        pass

    def build(self, candidate: Candidate, problem: Sum) -> float:
        if candidate.block("B") == NO_COMPILE:
            raise ValueError("no such block")
        if candidate.block("B") == CRASHES:
            os.abort()
        return 0.5


class Service:
    """Times by the block size alone; Triton is half as fast."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.announce = announce

    def prepare(self, problem: Sum) -> dict[str, str]:
        self.passed: dict[str, Candidate] = {}
        return {"other": "RuntimeError: not here"}

    def check(self, candidate: Candidate) -> float:
        self.announce(candidate.name)
        match candidate.block("B"):
            case 3:
                raise FatalInChild("illegal address")
            case 4:
                time.sleep(60)
            case 5:
                raise ValueError("wrong result")
        self.passed[candidate.name] = candidate
        return 1e-3

    def admitted(self) -> list[str]:
        return list(self.passed)

    def race(self, names: list[str], rounds: int) -> dict[str, Timing]:
        times = {"library": Timing(10.0, 0.0, rounds)}
        for name in names:
            self.announce(name)
            candidate = self.passed[name]
            if candidate.block("B") == HANGS_TIMED:
                time.sleep(60)
            slow = 2 if candidate.package == "triton" else 1
            times[name] = Timing(1000.0 * slow / candidate.block("B"), 0.0, rounds)
        return times
