"""Configurations of a kernel under one compiler or the other, and the files that list them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

#: A name and its value; configurations are hashable.
Pairs = tuple[tuple[str, object], ...]


class Problem(Protocol):
    """One case of a benchmark, printed as its row is named."""

    @property
    def specialised(self) -> tuple[object, ...]:
        """Problems for which this is equal run the same variant of a candidate."""

    @property
    def operations(self) -> float:
        """Floating-point operations of a run."""


@dataclass(frozen=True)
class Candidate:
    """A configuration: block sizes by parameter name, and the schedule; ``extra``: options that only deuteron has."""

    package: str
    blocks: Pairs
    warps: int
    stages: int
    extra: Pairs = ()

    def __str__(self) -> str:
        sizes = "x".join(str(value) for _, value in self.blocks)
        return f"{sizes} w{self.warps} s{self.stages}" + "".join(f" {name}={value}" for name, value in self.extra)

    @property
    def name(self) -> str:
        """Unique among the candidates of a problem."""
        return f"{self.package} {self}"

    @property
    def schedule(self) -> dict[str, object]:
        """The options of a launch that are no parameters of the kernel."""
        return {"num_warps": self.warps, "num_stages": self.stages, **dict(self.extra)}

    @property
    def grids(self) -> tuple[tuple[int], ...]:
        """Grids to compile it for: deuteron's code may be another one where there are many programs for each SM."""
        return ((1,), (1 << 16,)) if self.package == "deuteron" else ((1,),)

    def block(self, name: str) -> int:
        """One block size."""
        value = dict(self.blocks)[name]
        assert isinstance(value, int)
        return value

    def of(self, package: str) -> Candidate:
        """The same configuration under ``package``, with default schedule otherwise."""
        return Candidate(package, self.blocks, self.warps, self.stages)


def plain(names: Sequence[str], rows: Sequence[tuple[int, ...]]) -> list[Candidate]:
    """deuteron's candidates of a table whose columns are block sizes, num_warps and num_stages."""
    return [Candidate("deuteron", tuple(zip(names, row, strict=False)), row[-2], row[-1]) for row in rows]


def read_configs(path: Path, names: Sequence[str]) -> list[Candidate]:
    """deuteron's candidates of a JSON file: a list of objects with block sizes ``names``, num_warps, num_stages and
    ``schedule``, an object of further schedule options. A list in place of a value stands for each of its members.

    Raises:
        SystemExit: the file cannot be read as such.
    """
    with readable(path):
        return [c for entry in json.loads(path.read_text()) for c in _expand(entry, names)]


def candidate_from(entry: dict[str, object], names: Sequence[str]) -> Candidate:
    """deuteron's candidate of such an object without lists; raises ValueError where it has any."""
    (found,) = _expand(entry, names)
    return found


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """SystemExit, with the file's name, where what is read in it is not what was expected."""
    try:
        yield
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SystemExit(f"{path}: {type(error).__name__}: {error}") from None


def _expand(entry: dict[str, object], blocks: Sequence[str]) -> Iterator[Candidate]:
    names = [*blocks, "num_warps", "num_stages"]
    given = dict(entry)
    extra = given.pop("schedule", {})
    if set(given) != set(names) or not isinstance(extra, dict):
        raise ValueError(f"an entry has {', '.join(names)} and perhaps schedule, not {', '.join(entry)}")
    for values in itertools.product(*(_choices(given[name]) for name in names)):
        for chosen in itertools.product(*map(_choices, extra.values())):
            sizes = tuple(zip(names[:-2], values, strict=False))
            warps, stages = (int(v) for v in values[-2:])
            yield Candidate("deuteron", sizes, warps, stages, tuple(zip(extra, chosen, strict=True)))


def _choices(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
