"""A problem cut to a shape that the interpreter can run."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeGuard

from deuteron.compiler.syntax import expression_tree

from ..codec import Scalar
from ..errors import SpaceError
from ..expression import Expression
from ..space import Configuration
from ..workloads import Problem, WorkloadSpec

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import DeviceProperties

# The interpreter runs some 10^5 elements a second: dims are cut to about this, keeping divisibility by 16.
SMALL_DIM = 96
INTERPRETED_ELEMENTS = 1 << 20
# Dims stay multiples of what they are divided by, up to this.
LARGEST_PERIOD = 1024


def small_case(
    problem: Problem, device: DeviceProperties, default: Configuration
) -> tuple[Problem, Mapping[str, Scalar]]:
    """The problem at a shape that the interpreter can run, and the configuration to check there.

    Constraints over dims hold at the real shape, not at any: dims that the broken ones name grow until ``default`` is
    valid, as it is at the real shape; and so do those of tensors that would have no elements. Once the tensors have
    more than :data:`INTERPRETED_ELEMENTS` the nearest valid configuration stands in for it, if there is one.
    """
    limits = dict.fromkeys(problem.dims, SMALL_DIM)
    while True:
        small = cut_problem(problem, limits)
        space = small.full_space(device)
        empty = empty_axes(small)
        growing = cut_too_far([*space.violations(default), *empty], small, problem)
        if not growing:
            return small, default
        if not empty and small.elements > INTERPRETED_ELEMENTS:
            with suppress(SpaceError):
                return small, space.nearest(default)
        for dim in growing:
            limits[dim] *= 2


def cut_too_far(broken: Iterable[str], small: Problem, problem: Problem) -> set[str]:
    """The dims that ``broken`` constraints, or expressions, name and that are smaller in ``small``."""
    cut = {dim for dim, size in small.dims.items() if size < problem.dims[dim]}
    return {dim for text in broken for dim in Expression.parse(text).names & cut}


def cut_problem(problem: Problem, limits: Mapping[str, int]) -> Problem:
    """The problem with every dim cut to about its limit. Remainders by 16 are kept, so that what launches know about
    divisibility stays the same; and dims that are multiples of a number by which the workload divides (groups of 128
    weights that share a scale) stay multiples of it."""
    divisors = _divisors(problem.spec)
    dims = {dim: _cut(size, limits[dim], divisors) for dim, size in problem.dims.items()}
    return Problem(problem.spec, dims, problem.dtype)


def _cut(size: int, limit: int, divisors: set[int]) -> int:
    period = 16
    for divisor in sorted(divisors):
        together = math.lcm(period, divisor)
        if size % divisor == 0 and together <= LARGEST_PERIOD:
            period = together
    rest = -(-limit // period) * period
    return size if size <= rest + period else rest + size % period


def _divisors(spec: WorkloadSpec) -> set[int]:
    """Numbers by which sizes may be divided: those in the workload's expressions, and constexprs that it fixes."""
    texts = [*(text for tensor in spec.tensors for text in tensor.shape), *spec.scalars.values(), *spec.grid]
    divided = (node.right for text in texts for node in ast.walk(expression_tree(text.strip())) if _divides(node))
    written = {part.value for part in divided if isinstance(part, ast.Constant)}
    fixed = {value for value in spec.constexprs.values() if not isinstance(value, bool)}
    return {number for number in written | fixed if isinstance(number, int) and number > 1}


def _divides(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div)


def empty_axes(problem: Problem) -> list[str]:
    """Expressions of tensor sizes that give none at this shape."""
    sizes = (text for tensor in problem.spec.tensors for text in tensor.shape)
    return [text for text in sizes if Expression.parse(text).evaluate_number(problem.names) < 1]
