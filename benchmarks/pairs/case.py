"""One launch of a kernel, and the grids that most of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .arrays import Arrays

#: Of a launch, by name: arrays, numbers and constants.
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """``arguments`` makes what the kernel is given at run time; ``grid`` finds the grid from that and the constants."""

    name: str
    kernel: Any
    arguments: Callable[[Arrays], Arguments]
    grid: Callable[[Arguments], tuple[int, ...]]
    constants: Arguments
    num_warps: int = 4
    num_stages: int = 3

    def launch(self, arguments: Arguments) -> None:
        """Launch the kernel with what ``arguments`` made."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        self.kernel[self.grid(arguments | self.constants)](**arguments, **self.constants, **options)


def cdiv(a: int, b: int) -> int:
    """How many pieces of b cover a."""
    return -(-a // b)


def tiles(a: Arguments) -> tuple[int, ...]:
    """Of an M by N result: a program a tile of BM by BN."""
    return cdiv(a["M"], a["BM"]), cdiv(a["N"], a["BN"])


def blocks(a: Arguments) -> tuple[int, ...]:
    """Of n elements: a program a block of B."""
    return (cdiv(a["n"], a["B"]),)


def columns(a: Arguments) -> tuple[int, ...]:
    """Of N columns, or results: a program BN of them."""
    return (cdiv(a["N"], a["BN"]),)


def rows(a: Arguments) -> tuple[int, ...]:
    """A program a row of x."""
    return (a["x"].shape[0],)
