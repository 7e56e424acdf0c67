"""The correctness gate: no configuration is timed before its result was compared with a reference."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from deuteron.compiler.ir.parser import parse_function
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets.interpreter.launch import run
from deuteron.compiler.tile.matmul import Dot

from ..codec import Scalar
from ..errors import SpaceError, WorkloadError
from ..expression import Expression
from ..space import Configuration
from ..workloads import LaunchPlan, Problem, WorkloadSpec
from ..workloads.inputs import initial_contents, make_tensors
from ..workloads.references import INTERPRETER, find_reference
from ..workloads.tolerance import Comparison, Expected, compare_all
from ..workloads.widen import count_nan, widened
from .comparison import Judge
from .compilation import compile_variant
from .cores import cores_of_all
from .margins import Margins
from .processes import MEASURING_PROCESSES

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device, DeviceArray, DeviceProperties
    from deuteron.compiler.runtime.launch.compiled import CompiledKernel

Compiled: TypeAlias = "Callable[[Configuration], tuple[CompiledKernel, LaunchPlan]]"

# The interpreter runs some 10^5 elements a second: dims are cut to about this, keeping divisibility by 16.
SMALL_DIM = 96
INTERPRETED_ELEMENTS = 1 << 20
# Dims stay multiples of what they are divided by, up to this.
LARGEST_PERIOD = 1024


class Checker:
    """Tensors of one problem on one device, and what they must become.

    Inputs are made from ``seed``; outputs are poisoned before each check, so an element that is not written is wrong.
    Margins around all of them show what is written outside (:mod:`.margins`).
    With a NumPy reference the expected result is computed in float64 from the very inputs, rounded to their dtype.
    Without one, the default configuration is compared with the interpreter at a small shape (:func:`small_case`), and
    then gives the expected result at the real shape.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        seed: int,
        default: Configuration,
        compiled: Compiled,
    ) -> None:
        self._problem = problem
        self._device = device
        self._compiled = compiled
        self._initial = initial_contents(problem, seed)
        self._margins = [
            Margins(device, name, contents.shape, canonical_dtype(contents.row.dtype))
            for name, contents in self._initial.items()
        ]
        self._arrays = {name: around.array for name, around in zip(self._initial, self._margins, strict=True)}
        self._restore(self._initial)
        self._outputs = [t.name for t in problem.spec.tensors if t.role != "input"]
        values, self.reference = self._expectation(seed, default)
        self._judge = Judge(device, self._arrays, self._with_tolerances(values))

    def check(self, config: Configuration) -> Comparison:
        """Run ``config`` once on fresh outputs and compare; where that fails, once more on fresh inputs too, into which
        an earlier configuration may have written, or around them."""
        found = self._judged(config)
        if found.ok:
            return found
        self._restore(name for name in self._initial if name not in self._outputs)
        return self._judged(config)

    def launch(self, config: Configuration) -> Callable[[], None]:
        """A function that launches ``config`` on the tensors, as often as it is called."""
        kernel, variant = self._compiled(config)
        arguments = run_time_arguments(kernel, self._problem, self._arrays)
        device, grid = self._device, variant.grid
        return lambda: kernel.run(grid, *arguments, device=device)

    def _restore(self, names: Iterable[str]) -> None:
        for name in names:
            self._initial[name].restore(self._arrays[name])

    def _run(self, config: Configuration) -> None:
        """Launch ``config`` on fresh outputs, and wait for it."""
        self._restore(self._outputs)
        self.launch(config)()
        self._device.synchronize()

    def _judged(self, config: Configuration) -> Comparison:
        self._run(config)
        damage = [found for found in (around.damage() for around in self._margins) if found is not None]
        return Comparison(math.inf, "; ".join(damage)) if damage else self._judge.compare()

    def _result(self, config: Configuration) -> dict[str, np.ndarray]:
        self._run(config)
        return {name: self._arrays[name].to_numpy() for name in self._outputs}

    def _expectation(self, seed: int, default: Configuration) -> tuple[dict[str, np.ndarray], str]:
        name = self._problem.spec.reference
        if name != INTERPRETER:
            inputs = {
                tensor.name: widened(self._initial[tensor.name].array())
                for tensor in self._problem.spec.tensors
                if tensor.role != "output"
            }
            with _enough_cores(self._device):
                expected = find_reference(name)(inputs, self._problem.scalars)
            self._check_shapes(expected)
            return expected, f"NumPy float64 {name}"
        small, config = small_case(self._problem, self._device.properties, default)
        where = ", ".join(f"{dim}={size}" for dim, size in small.dims.items())
        interpreted = self._check_with_interpreter(small, seed, config)
        result = self._result(default)
        self._check_all_is_written(result, interpreted, where, default)
        return (
            result,
            f"the default configuration, itself checked with the interpreter at {where}",
        )

    def _with_tolerances(self, values: Mapping[str, np.ndarray]) -> list[Expected]:
        return [
            Expected(tensor.name, values[tensor.name], self._problem.tolerance_of(tensor))
            for tensor in self._problem.spec.tensors
            if tensor.role != "input"
        ]

    def _check_shapes(self, expected: Mapping[str, np.ndarray]) -> None:
        for name in self._outputs:
            wanted = self._initial[name].shape
            if name not in expected or expected[name].shape != wanted:
                found = expected[name].shape if name in expected else "nothing"
                raise WorkloadError(
                    f"the reference {self._problem.spec.reference!r} gives {found} for the output {name!r} of "
                    f"shape {list(wanted)}",
                    hint="use a reference that was written for these tensors, or 'interpreter'",
                )

    def _check_with_interpreter(self, small: Problem, seed: int, config: Configuration) -> dict[str, np.ndarray]:
        """Compare the device with the interpreter on the small problem; raises :class:`WorkloadError` if they differ,
        because then nothing could be said about any configuration. Returns what the interpreter gave.

        A product of f32 numbers that may shorten them to tf32 may also not do it, as on the CPU: either is right."""
        expected = interpret(small, config, make_tensors(small, seed))
        got = run_once(small, self._device, config, seed)
        comparison = compare_all(got, self._with_tolerances(expected))
        if not comparison.ok:
            unrounded = interpret(small, config, make_tensors(small, seed), round_products=False)
            if compare_all(got, self._with_tolerances(unrounded)).ok:
                return unrounded
        if not comparison.ok:
            raise WorkloadError(
                f"the default configuration does not give what the interpreter gives: {comparison.message}",
                hint="the kernel may read outside its tensors, or the workload may misdescribe its arguments",
            )
        return expected

    def _check_all_is_written(
        self,
        result: Mapping[str, np.ndarray],
        interpreted: Mapping[str, np.ndarray],
        where: str,
        default: Configuration,
    ) -> None:
        """Raise :class:`WorkloadError` where the default leaves NaN at the real shape only: a block that covers the
        small rows but not the real ones would make its own wrong result the expected one. And where an output is NaN
        everywhere, as one is that the kernel only adds to, or is mostly not written, as with a grid that is too small:
        any other such kernel would seem right."""
        for tensor in self._problem.spec.tensors:
            if tensor.role != "output":
                continue
            missing, size = count_nan(result[tensor.name]), result[tensor.name].size
            if size and missing == size:
                raise WorkloadError(
                    f"the default configuration leaves every element of the output {tensor.name!r} unwritten or NaN: "
                    "there is nothing to compare",
                    hint='if the kernel reads it or adds to it, its role is "inout"',
                )
            if count_nan(interpreted[tensor.name]):
                if 2 * missing > size:
                    self._check_most_is_written(tensor.name, result[tensor.name], default)
            elif missing:
                raise WorkloadError(
                    f"the default configuration leaves {missing} of {size} elements of the output "
                    f"{tensor.name!r} unwritten or NaN, and none at {where}",
                    hint="it does not cover this shape: the default (the first choice of each --search) needs a larger "
                    "block or grid, such as --constexpr BLOCK=next_power_of_2(N)",
                )

    def _check_most_is_written(self, name: str, result: np.ndarray, default: Configuration) -> None:
        """Raise :class:`WorkloadError` where a launch leaves more than half of an output as it was: NaN over poison,
        and 1 over ones. NaN that a kernel computes is NaN over both."""
        import numpy as np

        ones = np.ones(1, result.dtype)
        self._arrays[name].fill(ones)
        self.launch(default)()
        self._device.synchronize()
        kept = int(np.count_nonzero(np.isnan(result) & (self._arrays[name].to_numpy() == ones)))
        if 2 * kept > result.size:
            dims = ", ".join(f"{dim}={size}" for dim, size in self._problem.dims.items())
            raise WorkloadError(
                f"the default configuration writes only {result.size - kept} of {result.size} elements of the output "
                f"{name!r} at {dims}",
                hint=f"the grid {'; '.join(self._problem.spec.grid)} may have too few programs, or a block be too "
                "small for its axis (--constexpr BLOCK=next_power_of_2(N)); an output of which a part is meant to "
                'stay is "inout" (--tensor NAME=SHAPE:inout)',
            )


@contextmanager
def _enough_cores(device: Device) -> Iterator[None]:
    """On a CPU all are ours; beside a GPU others prepare."""
    properties = device.properties
    if properties.kind != "cuda":
        yield
        return
    with cores_of_all(MEASURING_PROCESSES, properties.uuid or device.name.replace(":", "-")):
        yield


def run_once(problem: Problem, device: Device, config: Configuration, seed: int) -> dict[str, np.ndarray]:
    """Compile and launch ``config`` on tensors of ``seed``; all tensors afterwards."""
    variant = problem.variant(config)
    kernel = compile_variant(problem, variant, device.target, device.properties.sm_count)
    arrays = {name: device.array(values) for name, values in make_tensors(problem, seed).items()}
    kernel.run(variant.grid, *run_time_arguments(kernel, problem, arrays), device=device)
    device.synchronize()
    return {name: array.to_numpy() for name, array in arrays.items()}


def run_time_arguments(kernel: CompiledKernel, problem: Problem, arrays: Mapping[str, DeviceArray]) -> list[object]:
    """What a launch passes, in signature order. Integers that are 1 are part of the code and not passed."""
    values: dict[str, object] = {**problem.scalars, **arrays}
    return [values[name] for name in kernel.signature]


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
        cut = {dim for dim, size in small.dims.items() if size < problem.dims[dim]}
        empty = empty_axes(small)
        broken = [*space.violations(default), *empty]
        growing = {dim for text in broken for dim in Expression.parse(text).names & cut}
        if not growing:
            return small, default
        if not empty and small.elements > INTERPRETED_ELEMENTS:
            with suppress(SpaceError):
                return small, space.nearest(default)
        for dim in growing:
            limits[dim] *= 2


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
    divided = (
        node.right for text in texts for node in ast.walk(ast.parse(text.strip(), mode="eval")) if _divides(node)
    )
    written = {part.value for part in divided if isinstance(part, ast.Constant)}
    fixed = {value for value in spec.constexprs.values() if not isinstance(value, bool)}
    return {number for number in written | fixed if isinstance(number, int) and number > 1}


def _divides(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod | ast.Div)


def empty_axes(problem: Problem) -> list[str]:
    """Expressions of tensor sizes that give none at this shape."""
    sizes = (text for tensor in problem.spec.tensors for text in tensor.shape)
    return [text for text in sizes if Expression.parse(text).evaluate_number(problem.names) < 1]


def interpret(
    problem: Problem, config: Configuration, tensors: dict[str, np.ndarray], *, round_products: bool = True
) -> dict[str, np.ndarray]:
    """Run ``config`` with the interpreter, the definition of the language, on ``tensors``, which it changes. Without
    ``round_products`` those of f32 numbers do not shorten them to tf32."""
    variant = problem.variant(config)
    compiled = make_variant(problem.source, variant.signature, variant.constexprs, "cpu", variant.schedule)
    tile = build(compiled, stop_after="tile").artifacts["tile"]
    values = {**problem.scalars, **tensors}
    function = parse_function(str(tile))
    if not round_products:
        for op in function.walk():
            if isinstance(op, Dot):
                op.precision = "ieee"
    run(function, variant.grid, [values[name] for name in compiled.signature])
    return tensors
