"""Running a function of tile IR on every target that there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from whole_tiles import Array

from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.ir import Function
from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.device import Device
from deuteron.compiler.runtime.devices import get_device
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.variant.metadata import KernelMetadata
from deuteron.compiler.signature import parse_argument_type
from deuteron.compiler.targets import Target, cpu, interpreter, nvptx
from deuteron.compiler.tile.passes import optimize
from simulator import simulate_launch

Argument = Array | int | float
Run = Callable[[Function, tuple[int, ...], Sequence[Argument]], None]


def _run_cpu(function: Function, grid: tuple[int, ...], arguments: Sequence[Argument]) -> None:
    program = cpu.lower_to_llvm(optimize(function), Schedule(enable_fp_fusion=False))
    kernel = cpu.load(cpu.emit_object(program), program.name)
    plain = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    types = [parameter.value.type for parameter in function.parameters]
    kernel.launch((*grid, 1, 1, 1)[:3], plain, types)


def ptx_program(function: Function, target: Target, schedule: Schedule) -> nvptx.PtxProgram:
    """The code for NVIDIA GPUs of a function of tile IR."""
    made = lower_to_gpu(optimize(function), target, schedule)
    return nvptx.lower_to_llvm(made, target, schedule)


def _run_simulated(function: Function, grid: tuple[int, ...], arguments: Sequence[Argument]) -> None:
    schedule = Schedule(num_warps=2, enable_fp_fusion=False)
    program = ptx_program(function, Target.parse("cuda:90a"), schedule)
    simulate_launch(lambda denied: program, grid, arguments)


def _run_cuda(function: Function, grid: tuple[int, ...], arguments: Sequence[Argument]) -> None:
    device, schedule = get_device("cuda:0"), Schedule(enable_fp_fusion=False)
    target = Target.parse(device.target)
    program = ptx_program(function, target, schedule)
    metadata = KernelMetadata(
        program.name, device.target, "", program.num_warps, 1, 1, program.recipe, shared_bytes=program.shared_bytes
    )
    signature = {q.name: parse_argument_type(q.value.type.elem.code) for q in function.parameters}
    ptx = nvptx.emit_ptx(program, target)
    code = nvptx.assemble(ptx, target, schedule).image
    kernel = CompiledKernel(metadata, signature, {"cubin": code}, None)
    run_in_place(kernel, grid, arguments, device)


def run_in_place(kernel: CompiledKernel, grid: tuple[int, ...], arguments: Sequence[Argument], device: Device) -> None:
    """Launch on copies of arrays in the device's memory, and copy back what they have become."""
    held = [device.array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    kernel.run(grid, *held, device=device)
    device.synchronize()
    for argument, there in zip(arguments, held, strict=True):
        if isinstance(argument, np.ndarray):
            argument[...] = there.to_numpy().reshape(argument.shape)


RUNNERS: dict[str, Run] = {
    "interpreter": interpreter.run,
    "cpu": _run_cpu,
    "simulated": _run_simulated,
    "cuda": _run_cuda,
}
