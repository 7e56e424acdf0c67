"""Running a whole function over a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import LaunchError
from ...ir.core import Function, FunctionParameter
from ...ir.types import Pointer, Tile
from ...scalar_arguments import ENCODERS, fitting
from .memory import Memory
from .numbers import Array, dtype_of
from .program import Held, Program
from .turns import Turn, run_in_turns

Argument = Array | int | float | bool


def run(
    function: Function,
    grid: Sequence[int],
    arguments: Sequence[Argument],
    *,
    on_print: Callable[[str], object] = print,
    poison: bool = False,
    buffers: Sequence[Array] = (),
    cooperative: bool = False,
) -> None:
    """Run every program of ``grid`` (one to three sizes), x fastest, on arrays that are changed in place.

    ``arguments``: one per parameter: arrays (or raw addresses) for pointers, numbers for the rest. ``buffers``: further
    arrays that pointers in memory may point to. ``on_print`` takes the printed lines. ``poison`` fills what masked
    loads leave undefined with NaN or 0xAA bytes instead of zeros. ``cooperative``: programs take turns instead of
    running one after the other, so that they may wait for each other.

    Raises:
        LaunchError: arguments or grid do not fit the function, or a cooperative grid has too many programs.
        MemoryAccessError: an access outside the arrays, naming program, source location, array and index.
        KernelAssertionError: a device assertion or an assumption is false.
    """
    x, y, z = (*grid, 1, 1, 1)[:3]
    sizes = (x, y, z)
    if not 1 <= len(grid) <= 3 or any(n < 0 for n in sizes):
        raise LaunchError(f"grid {tuple(grid)} needs one to three sizes of at least 0")
    if len(arguments) != len(function.parameters):
        names = ", ".join(p.name for p in function.parameters)
        raise LaunchError(f"{function.name} takes {len(function.parameters)} arguments ({names}), got {len(arguments)}")
    memory = Memory()
    held = [bind(p, a, memory) for p, a in zip(function.parameters, arguments, strict=True)]
    for buffer in buffers:
        memory.register(buffer)

    def run_program(number: int, turn: Turn | None) -> None:
        place = number % x, number // x % y, number // (x * y)
        program = Program(memory, place, sizes, on_print, poison=poison)
        program.turn = turn
        program.block(function.body, held)

    if cooperative:
        run_in_turns(x * y * z, run_program)
        return
    for number in range(x * y * z):
        run_program(number, None)


def bind(parameter: FunctionParameter, argument: Argument, memory: Memory) -> Held:
    """``argument`` as the value of ``parameter``; arrays are registered. Raises LaunchError if it does not fit."""
    type = parameter.value.type
    if isinstance(type.elem, Pointer):
        held = _pointer(parameter.name, type.elem, argument, memory)
    elif isinstance(argument, int | np.integer | np.bool_) or (
        isinstance(argument, float | np.floating) and type.is_float
    ):
        held = Held(_number(parameter.name, argument, type))
    else:
        raise LaunchError(f"argument {parameter.name!r} must be a number of type {type}")
    if type.is_integer or type.is_pointer:
        value = int(held.array)
        if value % parameter.divisibility:
            raise LaunchError(
                f"argument {parameter.name!r} = {value} is not a multiple of"
                f" {parameter.divisibility}, which the function was compiled for"
            )
    return held


def _number(name: str, argument: int | float | np.generic, type: Tile) -> Array:
    dtype = dtype_of(type.elem)
    number = argument.item() if isinstance(argument, np.generic) else argument
    encoder = ENCODERS.get(type.elem.code)
    if encoder is not None:
        return np.asarray(encoder(float(number)), f"u{dtype.itemsize}").view(dtype)
    return np.asarray(fitting(f"argument {name!r}", number, type)).astype(dtype)


def _pointer(name: str, type: Pointer, argument: object, memory: Memory) -> Held:
    if isinstance(argument, int):
        memory.foreign = True
        return Held(np.asarray(argument, np.uint64))
    if not hasattr(argument, "__array_interface__"):
        raise LaunchError(f"argument {name!r} must be an array ({type.code})")
    array = argument if isinstance(argument, np.ndarray) else np.asarray(argument)
    wanted = dtype_of(type.pointee)
    if array.dtype.itemsize != max(1, wanted.itemsize):
        raise LaunchError(f"argument {name!r} has dtype {array.dtype}, the kernel wants {wanted}")
    buffer = memory.register(array, name)
    return Held(np.asarray(array.ctypes.data, np.uint64), buffer)
