"""Running one kernel in every way there is: launches on copies of the arguments, and what the copies hold
afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron
from deuteron.compiler import knobs
from deuteron.compiler.ir import verify
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.runtime.arrays.descriptor import spread
from deuteron.compiler.runtime.launch.jit import JITFunction
from deuteron.compiler.runtime.launch.specialize import specialize
from deuteron.compiler.runtime.variant.pipeline import Build, build, make_tile
from deuteron.compiler.signature import scattered
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.interpreter import run as interpret
from deuteron.compiler.targets.nvptx import PtxProgram
from deuteron.compiler.tile.passes import dce, structure_accesses
from deuteron.tools.tensor_descriptor import TensorDescriptor
from simulator import simulate_launch

Launch = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path))


def copies(values: list[Any]) -> list[Any]:
    return [with_array(v, np.copy) for v in values]


def with_array(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """``value`` with ``change`` applied to the arrays that it is, describes or contains; anything else as it is."""
    if isinstance(value, tuple):
        return tuple.__new__(type(value), [with_array(item, change) for item in value])  # NamedTuples keep their names
    if isinstance(value, TensorDescriptor):
        _, *rest = value.__reduce__()[1]
        return TensorDescriptor(change(value.base), *rest)
    return change(value) if isinstance(value, np.ndarray) else value


def on_cpu(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> None:
    kernel[grid](*args, **options)


def as_python(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> None:
    with knobs.interpret.scope(True):
        kernel[grid](*args, **options)


def on_gpu(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> None:
    device = deuteron.get_device("cuda:0")
    held = [with_array(a, device.array) for a in args]
    kernel[grid](*held, **options)
    device.synchronize()
    flat = (scattered({str(i): value for i, value in enumerate(values)}).values() for values in (args, held))
    for given, there in zip(*flat, strict=True):
        array, changed = (v.base if isinstance(v, TensorDescriptor) else v for v in (given, there))
        if isinstance(array, np.ndarray):
            array[...] = changed.to_numpy().reshape(array.shape)


def as_tile_ir(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> None:
    """The IR interpreter, whose masked loads leave poison behind."""
    launch, shape, passed = specialized(kernel, grid, args, options)
    interpret(make_tile(Build(launch.variant)), shape, passed, poison=True)


def as_blocks(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> None:
    """As tile IR in which every access that is provably a box of an array has become one, under guards that hold."""
    launch, shape, passed = specialized(kernel, grid, args, options)
    values, denied = dict(zip(launch.signature, passed, strict=True)), set()
    while True:
        function = make_tile(Build(launch.variant))
        guards = structure_accesses(function, lambda op: True, frozenset(denied))
        if all(guard.holds(values[guard.parameter]) for guard in guards):
            break
        denied |= {guard for guard in guards if not guard.holds(values[guard.parameter])}
    interpret(verify(dce(function)), shape, passed, poison=True)


def as_ptx(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> None:
    """Assembled for two generations of GPUs without spills; the LLVM text for the newer one is simulated.

    The older one is the first that deuteron supports, or the first with conversions of f8 if the kernel has them."""
    launch, shape, passed = specialized(kernel, grid, args, options)

    def compiled(denied: frozenset[Guard], arch: str = "cuda:90a") -> PtxProgram:
        variant = replace(launch.variant, target=Target.parse(arch), denied=tuple(denied))
        made = build(variant)
        assert made.spills == 0, (arch, made.spills)
        text, shared, recipe = str(made.artifacts["llvm"]), made.shared_bytes, made.recipe
        return PtxProgram(text, variant.source.name, tuple(variant.signature), shared, recipe.threads // 32, recipe)

    has_f8 = any("f8" in str(kind) for kind in launch.variant.signature.values())
    compiled(frozenset(), "cuda:89" if has_f8 else "cuda:80")
    simulate_launch(compiled, shape, passed)


def specialized(kernel: JITFunction, grid: Any, args: list[Any], options: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    """The variant that a launch needs, the grid, and the run-time arguments."""
    bound, schedule = kernel.bind(args, options)
    launch = specialize(kernel, bound, schedule)
    return launch, grid(bound) if callable(grid) else grid, [spread(scattered(bound))[n] for n in launch.signature]


WAYS = {"cpu": on_cpu, "python": as_python, "tile": as_tile_ir, "blocks": as_blocks, "ptx": as_ptx}


@pytest.fixture(params=[*WAYS, pytest.param("cuda", marks=pytest.mark.gpu)])
def launch(request: pytest.FixtureRequest) -> Launch:
    """``launch(kernel, grid, *args, **constexprs)``: the arguments as the kernel leaves them."""
    run = on_gpu if request.param == "cuda" else WAYS[request.param]

    def start(kernel: JITFunction, grid: Any, *args: Any, **options: Any) -> list[Any]:
        held = copies(list(args))
        run(kernel, grid, held, options)
        return held

    return start


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture
def normal(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Normally distributed f32 of a shape."""
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="session")
def close() -> Callable[..., None]:
    """Compares with a float64 reference; bf16 and f16 results too."""

    def compare(got: np.ndarray, exact: np.ndarray, tolerance: float = 1e-5) -> None:
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=tolerance, atol=tolerance, equal_nan=True)

    return compare
