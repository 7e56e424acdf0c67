"""Whether a configuration is right at larger shapes than the one that it was measured at: tried, never assumed.

A block that covers an axis by itself is right until the axis outgrows it, and nothing in a kernel's text has to say so.
So a configuration runs with one size after the other made larger, and its result is compared: on the device with the
workload's NumPy reference; without one, on the CPU, which takes blocks of any size, with what the kernel gives there
with one of the configuration's numbers after the other made as many times larger. If a number is what covers the axis,
the larger one covers the larger axis, and the results differ; if it is not, they agree.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from deuteron.compiler.errors import DeuteronError, DeviceError
from deuteron.compiler.options import SCHEDULE_OPTIONS
from deuteron.compiler.runtime.devices import get_device

from ..records.reach import Reach
from ..space import Configuration
from ..workloads import Problem
from ..workloads.inputs import count_poison, poisons
from ..workloads.references import INTERPRETER, find_reference
from ..workloads.tolerance import Expected, compare_all
from ..workloads.widen import count_nan
from .check import Ran, run_once, unwritten_elements
from .cut import SMALL_DIM, cut_problem, cut_too_far, empty_axes
from .messages import Extended

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device, DeviceProperties

#: How many times larger a size is tried; a lookup gives nothing to a shape that is farther away.
FACTORS = (8, 4, 2)
#: Elements of all tensors of a larger shape, which take some tenths of a second.
MOST_ELEMENTS = 1 << 24
#: Seconds after which nothing more is begun.
SECONDS = 10.0
# Wrong results of one size after which no smaller one is tried.
_TRIES = 2
# Sizes that multiply to so many times what the configuration's numbers do are not covered together by one block.
_MARGIN = 64


def extend(problem: Problem, device: Device, config: Configuration, seed: int) -> Extended:
    """Try ``config``, which is right at the shape of ``problem``, at larger ones."""
    shapes = _LargerShapes(problem, _rules(problem, device.properties), config)
    growing = _Growing(problem, device, config, seed, time.monotonic() + SECONDS, shapes)
    sizes: dict[str, int] = {}
    doubts: dict[str, str] = {}
    for dim in problem.dims:
        larger, doubt = growing.largest([dim])
        if larger is None:
            doubts[dim] = doubt
        else:
            sizes[dim] = larger[dim]
    return Extended("ok", sizes=sizes, doubts=doubts, together=growing.together(list(sizes)))


@dataclass(frozen=True)
class LargerVariant:
    """What :func:`extend` compiles: a configuration at a larger shape. ``processors``: SMs or cores that launches of
    it will run on, where known."""

    problem: Problem
    config: Configuration
    target: str
    processors: int | None


@dataclass(frozen=True)
class FirstLarger:
    """What :func:`extend` begins with for a configuration of ``problem`` on a device."""

    problem: Problem
    properties: DeviceProperties
    target: str

    def __call__(self, config: Configuration) -> Iterator[LargerVariant]:
        """At shapes larger in each dimension and in all, as far as ``config`` runs there: sizes that are no multiples,
        which are code of their own. On the CPU, where that tries them, with those that it is compared with."""
        shapes = _LargerShapes(self.problem, self._rules, config)
        for larger in self._shapes(shapes):
            if self.problem.spec.reference == INTERPRETER:
                cpu = get_device("cpu")
                for other in (shapes.unscheduled, *shapes.with_larger_numbers()):
                    yield LargerVariant(larger, other, cpu.target, cpu.properties.sm_count)
            else:
                yield LargerVariant(larger, config, self.target, self.properties.sm_count)

    def _shapes(self, shapes: _LargerShapes) -> Iterator[Problem]:
        first: list[str] = []
        for dim in self.problem.dims:
            for larger in itertools.islice(shapes.of([dim]), 1):
                first.append(dim)
                yield larger
        if shapes.must_be_tried_together(first):
            yield from itertools.islice(shapes.of(first), 1)

    @cached_property
    def _rules(self) -> Reach:
        return _rules(self.problem, self.properties)


def _rules(problem: Problem, properties: DeviceProperties) -> Reach:
    return Reach.of(problem.full_space(properties), problem.dims)


@dataclass(frozen=True)
class _LargerShapes:
    """Shapes larger than that of ``problem`` at which ``config`` is legal by ``rules``."""

    problem: Problem
    rules: Reach
    config: Configuration

    @cached_property
    def numbers(self) -> dict[str, int]:
        """What the configuration gives the kernel besides its schedule, which changes no result: whole numbers, and
        truth values."""
        return {n: v for n, v in self.config.items() if n not in SCHEDULE_OPTIONS and isinstance(v, int)}

    @cached_property
    def unscheduled(self) -> Configuration:
        """The configuration without its schedule, which is one of a GPU."""
        return {name: value for name, value in self.config.items() if name not in SCHEDULE_OPTIONS}

    def with_larger_numbers(self) -> Iterator[Configuration]:
        """That, with one number after the other larger, or the other truth value."""
        for name, value in self.numbers.items():
            larger = not value if isinstance(value, bool) else FACTORS[0] * value
            yield {**self.unscheduled, name: larger}

    def must_be_tried_together(self, dims: Sequence[str]) -> bool:
        """Whether one block could cover several of ``dims``, each of which may be larger alone."""
        numbers = math.prod(v for v in self.numbers.values() if not isinstance(v, bool))
        return len(dims) > 1 and math.prod(self.problem.dims[dim] for dim in dims) <= _MARGIN * numbers

    def of(self, dims: Sequence[str]) -> Iterator[Problem]:
        """The problem with ``dims`` larger, the largest first; odd sizes first, since what is right at multiples alone
        is not right."""
        for factor in FACTORS:
            for less in (1, 0):
                found = self._legal({dim: factor * self.problem.dims[dim] - less for dim in dims})
                if found is not None:
                    yield found
                    break
        if len(dims) == 1 and self.rules.constraints:
            edge = self._edge(dims[0])
            found = self._legal({dims[0]: edge}) if edge > self.problem.dims[dims[0]] else None
            if found is not None:
                yield found

    def _edge(self, dim: str) -> int:
        """The size up to which constraints hold, as far as a search by halves finds it."""
        low, high = self.problem.dims[dim], FACTORS[0] * self.problem.dims[dim]
        while low + 1 < high:
            middle = (low + high) // 2
            if self.rules.broken(self.config, {**self.problem.dims, dim: middle}) is None:
                low = middle
            else:
                high = middle
        return low

    def _legal(self, sizes: Mapping[str, int]) -> Problem | None:
        """The problem with these sizes, and the others cut as far as constraints allow; None where that is not legal,
        or has too many elements."""
        grown = Problem(self.problem.spec, {**self.problem.dims, **sizes}, self.problem.dtype)
        limits = {dim: sizes.get(dim, SMALL_DIM) for dim in grown.dims}
        while (small := cut_problem(grown, limits)).elements <= MOST_ELEMENTS:
            broken = self.rules.broken(self.config, small.dims)
            wrong = [*empty_axes(small), *([] if broken is None else [broken])]
            if not wrong:
                return small
            growing = cut_too_far(wrong, small, grown)
            if not growing:
                return None
            for dim in growing:
                limits[dim] *= 2
        return None


@dataclass(frozen=True)
class _Growing:
    problem: Problem
    device: Device
    config: Configuration
    seed: int
    deadline: float
    shapes: _LargerShapes

    def largest(self, dims: Sequence[str]) -> tuple[Mapping[str, int] | None, str]:
        """The largest shape tried, with ``dims`` larger, at which the configuration is right; or None, and why."""
        doubt, tries = "no larger one is legal, or small enough to be tried", 0
        for larger in self.shapes.of(dims):
            if time.monotonic() > self.deadline:
                return None, "time was up before a larger one was tried"
            wrong = self._wrong_at(larger)
            if wrong is None:
                return larger.dims, ""
            doubt, tries = wrong, tries + 1
            if tries == _TRIES:
                break
        return None, doubt

    def together(self, dims: Sequence[str]) -> bool:
        """Whether it is right where several of ``dims``, each of which may be larger alone, are larger."""
        if len(dims) < 2:
            return False
        return not self.shapes.must_be_tried_together(dims) or self.largest(dims)[0] is not None

    @property
    def _interpreted(self) -> bool:
        return self.problem.spec.reference == INTERPRETER

    def _wrong_at(self, larger: Problem) -> str | None:
        """Why the configuration is not known to be right there, in words; None if it is right."""
        where = ", ".join(f"{dim}={size}" for dim, size in larger.dims.items())
        try:
            got = self._result(larger)
            if got.damage:
                return f"it {got.damage} at {where}"
            if any(map(count_nan, got.values.values())) or self._leaves_out(larger, got):
                return f"it leaves results unwritten, or NaN, at {where}"
            for expected in self._expected(larger, got):
                if any(map(count_nan, expected.values())) or not _agrees(larger, got.values, expected):
                    return f"it is wrong at {where}"
                if time.monotonic() > self.deadline:
                    return f"time was up before it was found right at {where}"
        except DeviceError:
            raise  # of a device that may be of no use any more
        except DeuteronError as error:
            return f"it could not be tried at {where}: {error.message.splitlines()[0]}"
        return None

    def _result(self, larger: Problem, turn: int = 0) -> Ran:
        if self._interpreted:
            return run_once(larger, get_device("cpu"), self.shapes.unscheduled, self.seed, turn)
        return run_once(larger, self.device, self.config, self.seed, turn)

    def _leaves_out(self, larger: Problem, got: Ran) -> bool:
        """Whether an element of an output is what it was; over two poisons where it may just look like it."""
        outputs = {t.name: got.values[t.name] for t in larger.spec.tensors if t.role == "output"}
        if not any(count_poison(values, poisons(values.dtype)[0]) for values in outputs.values()):
            return False
        again = self._result(larger, turn=1).values
        return any(unwritten_elements(values, again[name]) for name, values in outputs.items())

    def _expected(self, larger: Problem, got: Ran) -> Iterator[Mapping[str, np.ndarray]]:
        """Results that each have to be those of the configuration, which are ``got``."""
        spec = larger.spec
        if not self._interpreted:
            inputs = {t.name: got.widened(t.name) for t in spec.tensors if t.role != "output"}
            yield find_reference(spec.reference)(inputs, larger.scalars)
            return
        others = zip(self.shapes.numbers.values(), self.shapes.with_larger_numbers(), strict=True)
        for value, other in others:
            found = run_once(larger, get_device("cpu"), other, self.seed).values
            if isinstance(value, bool) and any(map(count_nan, found.values())):
                continue  # what nothing is masked with, say, is wrong here; what it stands beside need not be
            yield found


def _agrees(problem: Problem, got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    tensors = (tensor for tensor in problem.spec.tensors if tensor.role != "input")
    return compare_all(got, [Expected(t.name, expected[t.name], problem.tolerance_of(t)) for t in tensors]).ok
