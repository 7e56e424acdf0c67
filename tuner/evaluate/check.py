"""The correctness gate: no configuration is timed before its result was compared with a reference."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from deuteron.compiler.ir.parser import parse_function
from deuteron.compiler.runtime.arrays.dtypes import numpy_dtype
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets.interpreter.launch import run
from deuteron.compiler.tile.matmul import Dot

from ..errors import WorkloadError
from ..space import Configuration
from ..workloads import LaunchPlan, Problem, Tensor
from ..workloads.inputs import count_poison, make_tensors, poisons
from ..workloads.references import INTERPRETER, find_reference
from ..workloads.tolerance import Comparison, Expected, compare_all
from ..workloads.widen import count_nan
from .comparison import Judge
from .compilation import compile_variant
from .cores import cores_of_all
from .cut import small_case
from .processes import MEASURING_PROCESSES
from .tensors import Tensors
from .turns import chunk, gpu_name

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device, DeviceArray
    from deuteron.compiler.runtime.launch.compiled import CompiledKernel

Compiled: TypeAlias = "Callable[[Configuration], tuple[CompiledKernel, LaunchPlan]]"

#: How often a configuration is checked before it is stored: for so many seconds, within these numbers of launches.
LEAST_OFTEN, MOST_OFTEN, OFTEN_SECONDS = 4, 32, 0.05


class Checker:
    """Tensors of one problem on one device, and what they must become.

    Inputs are made from ``seed``; outputs are poisoned before each check, so an element that is not written is wrong.
    Where the poison is what is expected, as one of truth values often is, a check is two runs over different ones.
    Margins around all of them show what is written and read outside (:mod:`.margins`), and inputs must stay.
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
        self._tensors = Tensors(problem, device, seed)
        self._launched = False
        self._outputs = [tensor for tensor in problem.spec.tensors if tensor.role == "output"]
        over, self.reference = self._expectation(seed, default)
        first = _with_tolerances(problem, over[0])
        again = [tensor for tensor in self._outputs if self._holds_poison(tensor, over[0])]
        second = _with_tolerances(problem, {tensor.name: over[1][tensor.name] for tensor in again})
        self._judges = [Judge(device, self._tensors.arrays, expected) for expected in (first, second) if expected]

    def check(self, config: Configuration) -> Comparison:
        """Run ``config`` on fresh outputs and compare. One wrong result is enough: what the configurations that were
        timed before have written into inputs or around tensors is mended first, and is no excuse."""
        self.damage()
        return self._judged(config)

    def check_often(self, config: Configuration) -> Comparison:
        """As :meth:`check`, again and again for :data:`OFTEN_SECONDS`: programs that race are wrong now and then."""
        began = time.perf_counter()
        found = self.check(config)
        for launch in range(2, MOST_OFTEN + 1):
            if not found.ok or (launch > LEAST_OFTEN and time.perf_counter() - began > OFTEN_SECONDS):
                break
            found = self._judged(config)
        return found

    def launch(self, config: Configuration) -> Callable[[], None]:
        """A function that launches ``config`` on the tensors, as often as it is called until :meth:`damage` is."""
        kernel, variant = self._compiled(config)
        arguments = run_time_arguments(kernel, self._problem, self._tensors.arrays)
        device, grid = self._device, variant.grid
        self._launched = True
        return lambda: kernel.run(grid, *arguments, device=device)

    def damage(self) -> str | None:
        """What all launches since the last time have written where they must not, in words; it is mended then. Waits
        for the device."""
        launched, self._launched = self._launched, False
        return self._tensors.damage() if launched else None

    def _run(self, config: Configuration, turn: int) -> str | None:
        """Launch ``config`` on fresh outputs, and wait for it; what it wrote where it must not, in words."""
        self._tensors.refresh(turn)
        self.launch(config)()
        self._device.synchronize()
        return self.damage()

    def _judged(self, config: Configuration) -> Comparison:
        worst = 0.0
        for turn, judge in enumerate(self._judges):
            damage = self._run(config, turn)
            found = Comparison(math.inf, damage) if damage else judge.compare()
            if not found.ok:
                return found
            worst = max(worst, found.worst)
        return Comparison(worst)

    def _expectation(self, seed: int, default: Configuration) -> tuple[list[Mapping[str, np.ndarray]], str]:
        """What outputs hold after a launch over either poison, and what says so."""
        name = self._problem.spec.reference
        if name != INTERPRETER:
            inputs = {
                tensor.name: self._tensors.widened(tensor.name)
                for tensor in self._problem.spec.tensors
                if tensor.role != "output"
            }
            expected, by = _referred(name, inputs, self._problem, self._device)
            self._check_shapes(expected)
            return [expected, expected], by
        small, config = small_case(self._problem, self._device.properties, default)
        where = ", ".join(f"{dim}={size}" for dim, size in small.dims.items())
        missing = self._check_with_interpreter(small, seed, config, where)
        over: list[Mapping[str, np.ndarray]] = [self._result(default, 0)]
        # Integers that a kernel adds to what is there look like any others.
        twice = any(self._holds_poison(t, over[0]) or over[0][t.name].dtype.kind in "iub" for t in self._outputs)
        over.append(self._result(default, 1) if twice else over[0])
        for tensor in self._outputs:
            self._check_is_written(tensor, over[0][tensor.name], over[1][tensor.name], missing[tensor.name], where)
        return over, f"the default configuration, itself checked with the interpreter at {where}"

    def _result(self, default: Configuration, turn: int) -> dict[str, np.ndarray]:
        """What the default gives over that poison; raises :class:`WorkloadError` where it writes anywhere else."""
        damage = self._run(default, turn)
        if damage:
            raise _refused(damage, self._problem)
        return self._tensors.results()

    def _holds_poison(self, tensor: Tensor, values: Mapping[str, np.ndarray]) -> bool:
        dtype = numpy_dtype(self._problem.tensor_dtype(tensor))
        return count_poison(values[tensor.name], poisons(dtype)[0]) > 0

    def _check_shapes(self, expected: Mapping[str, np.ndarray]) -> None:
        for tensor in self._problem.spec.tensors:
            if tensor.role == "input":
                continue
            name, wanted = tensor.name, self._problem.tensor_shape(tensor)
            if name not in expected or expected[name].shape != wanted:
                found = expected[name].shape if name in expected else "nothing"
                raise WorkloadError(
                    f"the reference {self._problem.spec.reference!r} gives {found} for the output {name!r} of "
                    f"shape {list(wanted)}",
                    hint="use a reference that was written for these tensors, or 'interpreter'",
                )

    def _check_with_interpreter(
        self, small: Problem, seed: int, config: Configuration, where: str
    ) -> Mapping[str, int]:
        """Compare the device with the interpreter on the small problem; raises :class:`WorkloadError` if they differ,
        because then nothing could be said about any configuration. Returns how many elements of each output are
        unwritten there, or NaN.

        A product of f32 numbers that may shorten them to tf32 may also not do it, as on the CPU: either is right."""
        expected = interpret(small, config, make_tensors(small, seed))
        got = run_once(small, self._device, config, seed)
        if got.damage:
            raise _refused(got.damage, small)
        comparison = compare_all(got.values, _with_tolerances(small, expected))
        if not comparison.ok:
            unrounded = interpret(small, config, make_tensors(small, seed), round_products=False)
            if not compare_all(got.values, _with_tolerances(small, unrounded)).ok:
                raise WorkloadError(
                    f"the default configuration does not give what the interpreter gives at {where}: "
                    f"{comparison.message}",
                    hint="the kernel may read outside its tensors, or the workload may misdescribe its arguments",
                )
        again = any(got.values[tensor.name].dtype.kind in "iub" for tensor in self._outputs)
        second = run_once(small, self._device, config, seed, turn=1) if again else got
        return {t.name: missing_elements(got.values[t.name], second.values[t.name]) for t in self._outputs}

    def _check_is_written(
        self, tensor: Tensor, first: np.ndarray, second: np.ndarray, missing_if_small: int, where: str
    ) -> None:
        """Raise :class:`WorkloadError` where the default leaves elements unwritten or NaN at the real shape only: a
        block that covers the small rows but not the real ones would make its own wrong result the expected one. And
        where that is all of an output, as of one that the kernel only adds to, or where most is not written, as with a
        grid that is too small: any other such kernel would seem right. ``first`` and ``second``: over either poison."""
        import numpy as np

        missing, size = missing_elements(first, second), first.size
        what = "unwritten" if first.dtype.kind in "iub" else "unwritten or NaN"
        added = first.dtype.kind in "iub" and bool(np.all(first != second))
        if size and (missing == size or added):
            raise WorkloadError(
                f"the default configuration leaves every element of the output {tensor.name!r} {what}"
                f"{', or adds to it' if added else ''}: there is nothing to compare",
                hint='if the kernel reads it or adds to it, its role is "inout"',
            )
        if missing and not missing_if_small:
            raise WorkloadError(
                f"the default configuration leaves {missing} of {size} elements of the output "
                f"{tensor.name!r} {what}, and none at {where}",
                hint="it does not cover this shape: the default (the first choice of each --search) needs a larger "
                "block or grid, such as --constexpr BLOCK=next_power_of_2(N)",
            )
        kept = unwritten_elements(first, second)
        if 2 * kept > size:
            raise WorkloadError(
                f"the default configuration writes only {size - kept} of {size} elements of the output "
                f"{tensor.name!r} at {_shape_text(self._problem)}",
                hint=f"the grid {'; '.join(self._problem.spec.grid)} may have too few programs, or a block be too "
                "small for its axis (--constexpr BLOCK=next_power_of_2(N)); an output of which a part is meant to "
                'stay is "inout" (--tensor NAME=SHAPE:inout)',
            )


def _refused(damage: str, problem: Problem) -> WorkloadError:
    return WorkloadError(
        f"the default configuration {damage} at {_shape_text(problem)}",
        hint='what a kernel writes into is an "output", or "inout" if it reads it too (--tensor NAME=SHAPE:inout); and '
        "the workload's shapes have to be those of the tensors",
    )


def _shape_text(problem: Problem) -> str:
    return ", ".join(f"{dim}={size}" for dim, size in problem.dims.items())


def _with_tolerances(problem: Problem, values: Mapping[str, np.ndarray]) -> list[Expected]:
    """What is expected of those tensors of ``values`` that a kernel writes."""
    return [
        Expected(tensor.name, values[tensor.name], problem.tolerance_of(tensor))
        for tensor in problem.spec.tensors
        if tensor.role != "input" and tensor.name in values
    ]


def missing_elements(first: np.ndarray, second: np.ndarray) -> int:
    """How many elements of an output are not written, or NaN."""
    return unwritten_elements(first, second) if first.dtype.kind in "iub" else count_nan(first)


def unwritten_elements(first: np.ndarray, second: np.ndarray) -> int:
    """How many elements of an output hold what they held before, of a launch over either poison."""
    import numpy as np

    before, after = poisons(first.dtype)
    kept = second == np.array(after).astype(second.dtype)
    return count_poison(first[kept], before)


def _referred(
    name: str, inputs: Mapping[str, np.ndarray], problem: Problem, device: Device
) -> tuple[Mapping[str, np.ndarray], str]:
    """What the reference of that name gives for ``inputs`` in float64, and what says so. On a CPU all cores are ours;
    beside a GPU others prepare, and the GPU may be faster."""
    reference, says = find_reference(name), f"NumPy float64 {name}"
    if device.properties.kind != "cuda":
        return reference(inputs, problem.scalars), says
    from .products import multiplier_for  # lazy: only GPUs multiply for references

    gpu = gpu_name(device)
    multiplier = multiplier_for(device, functools.partial(chunk, gpu))
    if multiplier is not None:
        inputs = {name: multiplier.of(values) for name, values in inputs.items()}
    with cores_of_all(MEASURING_PROCESSES, gpu):
        expected = reference(inputs, problem.scalars)
    taken = multiplier is not None and multiplier.taken
    return expected, f"{says}, products taken on the GPU and verified by NumPy" if taken else says


@dataclass(frozen=True, eq=False)
class Ran:
    """What a launch left: all tensors but the inputs, and what it wrote where it must not, in words. ``widened`` gives
    what a tensor that is no output held before, by name, in float64."""

    values: Mapping[str, np.ndarray]
    damage: str | None
    widened: Callable[[str], np.ndarray]


def run_once(problem: Problem, device: Device, config: Configuration, seed: int, turn: int = 0) -> Ran:
    """Compile and launch ``config`` on tensors of ``seed``, outputs over the poison of that ``turn``."""
    variant = problem.variant(config)
    kernel = compile_variant(problem, variant, device.target, device.properties.sm_count)
    tensors = Tensors(problem, device, seed)
    tensors.refresh(turn)
    kernel.run(variant.grid, *run_time_arguments(kernel, problem, tensors.arrays), device=device)
    device.synchronize()
    return Ran(tensors.results(), tensors.damage(), tensors.widened)


def run_time_arguments(kernel: CompiledKernel, problem: Problem, arrays: Mapping[str, DeviceArray]) -> list[object]:
    """What a launch passes, in signature order. Integers that are 1 are part of the code and not passed."""
    values: dict[str, object] = {**problem.scalars, **arrays}
    return [values[name] for name in kernel.signature]


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
