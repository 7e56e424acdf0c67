"""Launches of random kernels: as users launch them, by the interpreter, on the simulator, or compiled only."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from deuteron.compiler import knobs
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.targets import interpreter
from deuteron.compiler.targets.assembler import has_ptxas
from deuteron.compiler.targets.nvptx import PtxProgram

from .families import RandomKernel
from .kinds import BF16, EIGHT_BITS, Array
from .memory import memory_of, signature_of
from .rendering import text_of

#: What a launch leaves in each array; None where nothing runs.
Launch = Callable[[RandomKernel], "dict[str, Array] | None"]
_numbers = itertools.count()


def on_256_bytes(elements: Array) -> Array:
    """A copy on an address that is a multiple of 256."""
    room = np.empty(elements.nbytes + 256, np.uint8)
    at = -room.ctypes.data % 256
    made = room[at : at + elements.nbytes].view(elements.dtype)
    made[:] = elements
    return made


def held_by_numpy(kernel: RandomKernel) -> tuple[dict[str, Array], list[Array]]:
    """The arrays of a launch, and what of each the kernel gets."""
    memory = memory_of(kernel)
    held = {array.name: on_256_bytes(array.elements) for array in memory}
    return held, [held[array.name][array.lead :] for array in memory]


def function_of(kernel: RandomKernel) -> Any:
    """The kernel as a function that can be launched."""
    import deuteron
    import deuteron.language as tl

    name = f"<random kernel {kernel.seed} {next(_numbers)}>"
    text = text_of(kernel).replace("import triton.language as tl\n", "").replace("import triton\n", "")
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"triton": deuteron, "tl": tl}
    exec(compile(text, name, "exec"), names)
    return names["kernel"]


def on_cpu(kernel: RandomKernel) -> dict[str, Array]:
    """As users launch it on arrays of NumPy."""
    import deuteron
    import deuteron.language as tl

    held, passed = held_by_numpy(kernel)
    arguments: list[Any] = []
    for memory, part in zip(memory_of(kernel), passed, strict=True):
        foreign = memory.kind is BF16 or memory.kind in EIGHT_BITS
        arguments.append(
            deuteron.reinterpret(part.view(f"u{part.itemsize}"), getattr(tl, memory.kind.language)) if foreign else part
        )
    function_of(kernel)[(kernel.programs,)](*arguments, *kernel.numbers.values(), **kernel.options)
    return held


def eagerly(kernel: RandomKernel) -> dict[str, Array]:
    """Under ``TRITON_INTERPRET``: the kernel's own Python code."""
    with knobs.interpret.scope(True):
        return on_cpu(kernel)


def interpreted(kernel: RandomKernel) -> dict[str, Array]:
    """By the interpreter of the tile IR, before any pass."""
    held, passed = held_by_numpy(kernel)
    function = lower(_source(kernel), signature_of(kernel), {})
    arguments: dict[str, Any] = dict(zip([*held, *kernel.numbers], [*passed, *kernel.numbers.values()], strict=True))
    names = [parameter.value.name for parameter in function.parameters]
    interpreter.run(function, (kernel.programs, 1, 1), [arguments[name] for name in names])
    return held


def on_gpu(kernel: RandomKernel) -> dict[str, Array]:
    """As users launch it on tensors of a GPU."""
    import torch

    import deuteron
    import deuteron.language as tl

    held, arguments = {}, []
    for memory in memory_of(kernel):
        raw = torch.from_numpy(memory.elements.view(f"i{memory.elements.itemsize}").copy()).cuda()
        held[memory.name] = raw, memory.elements.dtype
        arguments.append(deuteron.reinterpret(raw[memory.lead :], getattr(tl, memory.kind.language)))
    deuteron.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    function_of(kernel)[(kernel.programs,)](*arguments, *kernel.numbers.values(), **kernel.options)
    torch.cuda.synchronize()
    return {name: raw.cpu().numpy().view(dtype) for name, (raw, dtype) in held.items()}


def simulated(kernel: RandomKernel) -> dict[str, Array]:
    """The code for an H100 on the simulator, which also finds races."""
    from simulator import simulate_launch

    variant = make_variant(_source(kernel), signature_of(kernel), {}, "cuda:90a", kernel.options)
    held, passed = held_by_numpy(kernel)
    arguments: dict[str, Any] = dict(zip([*held, *kernel.numbers], [*passed, *kernel.numbers.values()], strict=True))

    def compiled(denied: frozenset[Any]) -> PtxProgram:
        made = build(replace(variant, denied=tuple(denied)), "llvm")
        assert made.recipe is not None and made.shared_bytes is not None
        warps, text = made.recipe.threads // 32, str(made.artifacts["llvm"])
        return PtxProgram(text, "kernel", tuple(variant.signature), made.shared_bytes, warps, made.recipe)

    simulate_launch(compiled, (kernel.programs,), [arguments[name] for name in variant.signature])
    return held


def compiled_for(arch: str) -> Launch:
    """To PTX, and to machine code where an assembler is installed."""

    def launch(kernel: RandomKernel) -> None:
        variant = make_variant(_source(kernel), signature_of(kernel), {}, f"cuda:{arch}", kernel.options)
        with knobs.verify.scope(True):
            build(variant, None if has_ptxas() else "ptx")

    return launch


def _source(kernel: RandomKernel) -> KernelSource:
    return KernelSource.from_text(text_of(kernel), "kernel", f"<random kernel {kernel.seed}>")


LAUNCHES: dict[str, Launch] = {
    "cpu": on_cpu,
    "interpreter": interpreted,
    "eager": eagerly,
    "cuda": on_gpu,
    "simulated": simulated,
    "sm_80": compiled_for("80"),
    "sm_90a": compiled_for("90a"),
}
#: Those whose kernels may have PTX in them.
WITH_ASSEMBLY = ("cuda", "sm_80", "sm_90a")
