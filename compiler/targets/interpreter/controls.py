"""Control flow, printing and assertions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import KernelAssertionError
from ...ir.core import Op
from ...ir.types import Pointer, Tile
from ...tile import control as c
from ...tile import debug as d
from ...tile.assembly import EffectfulAssembly, InlineAssembly
from ...tile.records import Record
from .numbers import Array, dtype_of
from .program import Held, Program, evaluates

for _assembly in (InlineAssembly, EffectfulAssembly):
    evaluates.unsupported(_assembly, "inline assembly is that of GPUs")
evaluates.unsupported(c.Yield, "terminators are read by the operation around them")
evaluates.unsupported(c.Condition, "terminators are read by the operation around them")


@evaluates(c.For)
def for_loop(op: c.For, program: Program) -> Sequence[Held]:
    lower, upper, step = (int(program.item(v)) for v in (op.lower, op.upper, op.step))
    if step == 0:
        raise KernelAssertionError(f"the step of the for loop at {op.location} is zero")
    carried = [program.held[v] for v in op.inits]
    dtype = dtype_of(op.lower.type.elem)
    for i in range(lower, upper, step):
        carried = program.block(op.body, [Held(np.asarray(i, dtype)), *carried])
    return carried


@evaluates(c.While)
def while_loop(op: c.While, program: Program) -> Sequence[Held]:
    carried = [program.held[v] for v in op.inits]
    while True:
        condition, *carried = program.block(op.before, carried)
        if not condition.array:
            return carried
        carried = program.block(op.body, carried)


@evaluates(c.If)
def if_else(op: c.If, program: Program) -> Sequence[Held]:
    return program.block(op.then if program.get(op.condition) else op.otherwise)


@evaluates(d.Print)
def print_values(op: d.Print, program: Program) -> Sequence[Array]:
    pid = ", ".join(map(str, program.program_id))
    if not op.values:
        program.on_print(f"pid ({pid}) {op.prefix}")
    for number, value in enumerate(op.values):
        label = d.label_text(op.prefix, number, len(op.values))
        for index, element in np.ndenumerate(program.get(value)):
            place = d.index_text(index, value.type.shape)
            program.on_print(f"pid ({pid}) {place}{label}{_shown(element, value.type, op.hex)}")
    return ()


def _shown(element: object, type: Tile, hexadecimal: bool) -> str:
    array = np.asarray(element, dtype_of(type.elem))
    if isinstance(type.elem, Pointer) or hexadecimal:
        bits = array.view(f"uint{8 * array.dtype.itemsize}").item()
        return f"0x{bits:0{2 * array.dtype.itemsize}x}"
    return f"{float(array):f}" if type.is_float else str(int(array))


@evaluates(Record)
def no_record(op: Record, program: Program) -> Sequence[Array]:
    """The time that NumPy takes says nothing about the kernel."""
    return ()


@evaluates(d.Assert)
def assertion(op: d.Assert, program: Program) -> Sequence[Array]:
    return _demand(op, program.get(op.condition), f"device-side assertion failed: {op.message}", program)


@evaluates(d.Assume)
def assume(op: d.Assume, program: Program) -> Sequence[Array]:
    return _demand(op, program.get(op.condition), "tl.assume: the condition is false", program)


def _demand(op: Op, condition: Array, message: str, program: Program) -> Sequence[Array]:
    if not condition.all():
        first = tuple(int(i) for i in np.argwhere(~condition)[0])
        where = f"{op.location}: " if op.location else ""
        raise KernelAssertionError(f"{where}{message} (program {program.program_id}, tile index {first})")
    return ()
