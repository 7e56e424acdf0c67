"""``dot`` without tensor cores: operands in shared memory, every thread multiplies its own rows and columns.

Both operands are stored with K slowest, so that the threads of a warp read neighbouring rows (or columns) for one k, or
the same ones, which shared memory broadcasts. The loop over k is a real loop: code size does not grow with K.
"""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...ir.core import Value
from ...ir.types import Scalar
from ...layout import LinearLayout
from ...layout.access import element_bytes_of
from ...tile.matmul import Dot
from .casts import convert
from .control import loop_hints
from .elementwise import intrinsic
from .lowering import Lowering, reach_of, rule
from .registers import canonical_registers, register_type
from .vectors import load_shared, store_shared


@rule(Dot)
def _dot(state: Lowering, op: Dot) -> None:
    layout = op.acc.type.layout
    if layout is None:
        raise UnsupportedOp("dot needs a layout", location=op.location)
    elem, scalar = op.a.type.elem, op.acc.type.scalar
    start_a = state.scratch(op)
    start_b = start_a + op.a.type.size * element_bytes_of(elem.bits)
    _fill(state, op.a, start_a, outer_axis=0)
    _fill(state, op.b, start_b, outer_axis=1)
    state.barrier()

    text = state.text
    head, after = text.fresh("head"), text.fresh("after")
    k, following = "%" + text.fresh("k"), "%" + text.fresh("n")
    canonical = canonical_registers(layout)
    unique = [i for i, c in enumerate(canonical) if i == c]
    inits = state.values[op.acc]
    start = {i: inits[i] for i in unique}
    before = state.block
    text.do(f"br label %{head}")
    state.begin(head)
    name = register_type(scalar)
    sums = {i: "%" + text.fresh("p") for i in unique}
    nexts = {}
    phis = text.current
    text.chunk()
    rows = _side(state, op.a, scalar, layout, 0, start_a, k)
    columns = _side(state, op.b, scalar, layout, 1, start_b, k)
    for i in unique:
        row, column = layout.register_coordinates()[i]
        nexts[i] = _multiply_add(state, scalar, rows[row], columns[column], sums[i])
    text.do(f"{following} = add i32 {k}, 1")
    done = text.op(f"icmp eq i32 {following}, {op.a.type.shape[1]}")
    text.do(f"br i1 {done}, label %{after}, label %{head}, !llvm.loop {loop_hints(state)}")
    phis.append(f"  {k} = phi i32 [0, %{before}], [{following}, %{head}]")
    for i in unique:
        phis.append(f"  {sums[i]} = phi {name} [{start[i]}, %{before}], [{nexts[i]}, %{head}]")
    state.begin(after)
    state.define(op.result, [nexts[c] for c in canonical])


def _fill(state: Lowering, value: Value, start: int, outer_axis: int) -> None:
    """Write a tile to shared memory with its K axis slowest."""
    layout = value.type.layout
    if layout is None:
        raise UnsupportedOp("an operand of dot has no layout")
    elem = value.type.elem
    outer = value.type.shape[outer_axis]
    size = element_bytes_of(elem.bits)

    def place(basis: tuple[int, ...]) -> int:
        return (basis[1 - outer_axis] * outer + basis[outer_axis]) * size

    lane, warp = [place(b) for b in layout.lane], [place(b) for b in layout.warp]
    thread, reach = state.thread_bits(lane, warp), reach_of((*lane, *warp))
    registers = state.values[value]
    coordinates = layout.register_coordinates()
    for i in registers.unique():
        offset = state.add_bits(thread, reach, place(coordinates[i]))
        address = state.shared(_plus(state, offset, start))
        store_shared(state, elem, [registers[i]], address)


def _plus(state: Lowering, offset: str, start: int) -> str:
    if not start:
        return offset
    if not offset.startswith("%"):
        return str(int(offset) + start)
    return state.text.op(f"add nuw nsw i32 {offset}, {start}")


def _side(
    state: Lowering, value: Value, to: Scalar, layout: LinearLayout, axis: int, start: int, k: str
) -> dict[int, str]:
    """What a thread needs for one k along ``axis``, by register coordinate, as the accumulator's type ``to``."""
    elem = value.type.elem
    size = element_bytes_of(elem.bits)
    outer = value.type.shape[axis]
    wanted = sorted({c[axis] for c in layout.register_coordinates()})
    thread = state.coordinate(layout, axis)
    reach = reach_of([b[axis] for b in (*layout.lane, *layout.warp)])
    row = state.text.op(f"mul nuw nsw i32 {k}, {outer * size}")
    values: dict[int, str] = {}
    for first, vector in _runs(wanted, reach, 16 // size):
        index = state.add_bits(thread, reach, first)
        offset = _scaled(state, index, size)
        offset = _plus(state, offset, start)
        total = state.text.op(f"add nuw nsw i32 {row}, {offset}")
        loaded = load_shared(state, elem, vector, state.shared(total))
        for i, element in enumerate(loaded):
            values[first + i] = convert(state, element, value.type.scalar, to)
    return values


def _scaled(state: Lowering, index: str, size: int) -> str:
    if not index.startswith("%"):
        return str(int(index) * size)
    return index if size == 1 else state.text.op(f"mul nuw nsw i32 {index}, {size}")


def _runs(wanted: list[int], reach: int, longest: int) -> list[tuple[int, int]]:
    """Aligned runs of consecutive coordinates that no thread bit cuts: (first, length)."""
    present = set(wanted)
    vector = longest
    while vector > 1 and (
        reach & (vector - 1)
        or any(first // vector * vector + i not in present for first in wanted for i in range(vector))
    ):
        vector //= 2
    return [(first, vector) for first in wanted if first % vector == 0]


def _multiply_add(state: Lowering, scalar: Scalar, x: str, y: str, total: str) -> str:
    name = register_type(scalar)
    if scalar.is_float:
        return intrinsic(state, "fma", name, x, y, total)
    product = state.text.op(f"mul {name} {x}, {y}")
    return state.text.op(f"add {name} {total}, {product}")
