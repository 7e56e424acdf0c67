"""device_print and device_assert: one thread speaks for each element of a tile, and every thread, as in Triton, where
there is none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...ir.types import F32, F64, Element, Scalar
from ...tile.debug import Assert, Print, index_text, label_text
from .casts import convert
from .control import when
from .lowering import Lowering, rule


@rule(Print)
def _print(state: Lowering, op: Print) -> None:
    if not op.values:
        _print_line(state, op.prefix)
    for number, value in enumerate(op.values):
        registers = state.values[value]
        alone = state.only_thread(value.type.layout) if value.type.rank else None
        names = [(i, registers[i]) for i in registers.unique()]
        when(state, alone, partial(_print_all, state, op, number, names))


def _print_all(state: Lowering, op: Print, number: int, names: list[tuple[int, str]]) -> None:
    value = op.values[number]
    layout, label = value.type.layout, label_text(op.prefix, number, len(op.values))
    for i, name in names:
        index: list[str] = []
        if layout is not None:
            for axis, constant in enumerate(layout.register_coordinates()[i]):
                thread = state.coordinate(layout, axis)
                index.append(thread if not constant else state.text.op(f"xor i32 {thread}, {constant}"))
        word, kind, shown = _argument(state, value.type.elem, name, op.hex)
        place = index_text(["u"] * len(index), value.type.shape)
        _print_line(state, place, label, word, [*(("i32", v) for v in index), (kind, shown)])


def _print_line(
    state: Lowering, place: str, label: str = "", word: str = "", fields: Sequence[tuple[str, str]] = ()
) -> None:
    """Print the program, then ``place`` and ``word`` as printf's, with ``label`` as it is between them."""
    pid = [state.machine.program_id(state, axis) for axis in range(3)]
    if not word:
        place = place.replace("%", "%%")
    template = f"pid (%u, %u, %u) {place}{label.replace('%', '%%')}{word}\n"
    state.machine.print_line(state, template, [*(("i32", v) for v in pid), *fields])


def _argument(state: Lowering, elem: Element, name: str, hex: bool) -> tuple[str, str, str]:
    """printf's word, and type and value as C's varargs pass them."""
    if not isinstance(elem, Scalar):
        return "%p", "i64", state.text.op(f"ptrtoint ptr addrspace(1) {name} to i64")
    if elem.is_float:
        return (
            "%f",
            "double",
            convert(state, convert(state, name, elem, F32), F32, F64) if elem != F64 else name,
        )
    long = "ll" if elem.bits == 64 else ""
    if elem.bits < 32:
        extend = "sext" if elem.is_signed and not hex else "zext"
        name = state.text.op(f"{extend} i{elem.bits} {name} to i32")
    letter = "x" if hex else "d" if elem.is_signed else "u"
    return (
        f"{f'0x%0{max(2, elem.bits // 4)}' if hex else '%'}{long}{letter}",
        "i64" if long else "i32",
        name,
    )


@rule(Assert)
def _assert(state: Lowering, op: Assert) -> None:
    registers = state.values[op.condition]
    holds: str | None = None
    for i in registers.unique():
        holds = state.both(holds, registers[i])
    failed = state.text.op(f"xor i1 {holds}, true")
    where = op.location
    message = state.module.string(op.message or "device-side assertion failed")
    file = state.module.string(where.file if where else "<unknown>")
    function = state.module.string(state.source.name)
    line = where.line if where else 0
    when(state, failed, lambda: state.machine.fail(state, message, file, line, function))
