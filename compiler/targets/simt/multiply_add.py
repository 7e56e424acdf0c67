"""``dot`` without tensor cores: operands in shared memory, every thread multiplies its own rows and columns.

Operands that a ring has brought are read where they lie, others are stored to scratch first. A turn of the loop over k
takes several k at once, so that vectors along k are read whole and loads run under multiplications; it is a real loop:
code size does not grow with K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import UnsupportedOp
from ...gpu.layouts.operands import scratch_layout
from ...gpu.memory.scratch import operand_bytes
from ...hardware import VECTOR_BYTES
from ...ir.core import Value
from ...ir.types import Scalar
from ...layout import LinearLayout, SharedLayout, plan_shared_access
from ...layout.access import element_bytes_of
from ...layout.linear import flatten
from ...tile.matmul import Dot
from .casts import convert
from .control import loop_hints
from .convert import addresses, store_registers
from .elementwise import intrinsic
from .lowering import Lowering, reach_of, rule
from .registers import canonical_registers, register_type
from .vectors import load_shared

#: Elements of both operands that a thread reads in one turn, and the most k of a turn.
_READ_AT_ONCE, _DEEPEST = 64, 8


@rule(Dot)
def _dot(state: Lowering, op: Dot) -> None:
    layout, scalar = _layout(op.acc), op.acc.type.scalar
    sides = _sides(state, op, layout)
    depth = op.a.type.shape[1]
    turn = _turn(depth, sum(len(side.wanted) for side in sides))

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
    nexts = dict(sums)
    phis = text.current
    text.chunk()
    rows, columns = (dict(_read(state, side, k, turn, scalar)) for side in sides)
    for j in range(turn):
        for i in unique:
            row, column = layout.register_coordinates()[i]
            nexts[i] = _multiply_add(state, scalar, rows[row, j], columns[column, j], nexts[i])
    text.do(f"{following} = add i32 {k}, {turn}")
    done = text.op(f"icmp eq i32 {following}, {depth}")
    text.do(f"br i1 {done}, label %{after}, label %{head}, !llvm.loop {loop_hints(state)}")
    phis.append(f"  {k} = phi i32 [0, %{before}], [{following}, %{head}]")
    for i in unique:
        phis.append(f"  {sums[i]} = phi {name} [{start[i]}, %{before}], [{nexts[i]}, %{head}]")
    state.begin(after)
    state.define(op.result, [nexts[c] for c in canonical])


@dataclass(frozen=True, slots=True)
class _Side:
    """One operand as a thread reads it. ``outer``: the axis that is not K; ``wanted``: the coordinates along it in the
    thread's registers, to which ``thread`` (bytes) adds its own; ``start``: the tile's first byte."""

    value: Value
    outer: int
    shared: SharedLayout
    start: str
    wanted: tuple[int, ...]
    thread: str
    reach: int

    @property
    def size(self) -> int:
        """Bytes of an element in shared memory."""
        return element_bytes_of(self.value.type.elem.bits)

    def place(self, outer: int, k: int) -> int:
        """The byte of an element, without ``start``. Places are linear in the bits of both coordinates."""
        return _place(self.shared, self.outer, outer, k) * self.size


def _place(shared: SharedLayout, axis: int, outer: int, k: int) -> int:
    coordinates = (outer, k) if axis == 0 else (k, outer)
    return shared.inverse()(flatten(shared.shape, coordinates))


def _sides(state: Lowering, op: Dot, layout: LinearLayout) -> list[_Side]:
    """Both operands, those in registers stored to scratch."""
    sides: list[_Side] = []
    stored = any(v.type.shared is None for v in (op.a, op.b))
    free = state.scratch(op) if stored else 0
    for outer, value in enumerate((op.a, op.b)):
        shared = value.type.shared
        if shared is not None:
            start = state.places[value]
        else:
            held, bits = _layout(value), value.type.elem.bits
            shared, start = scratch_layout(held, bits), str(free)
            write = plan_shared_access(held, shared, bits)
            free += operand_bytes(value)
            writes = addresses(state, write, start)
            for i, group in enumerate(write.registers):
                store_registers(state, value, group, writes(i))
        size = element_bytes_of(value.type.elem.bits)
        lane, warp = ([_place(shared, outer, b[outer], 0) * size for b in part] for part in (layout.lane, layout.warp))
        wanted = tuple(sorted({c[outer] for c in layout.register_coordinates()}))
        thread, reach = state.thread_bits(lane, warp), reach_of((*lane, *warp))
        sides.append(_Side(value, outer, shared, start, wanted, thread, reach))
    if stored:
        state.barrier()
    return sides


def _layout(value: Value) -> LinearLayout:
    layout = value.type.layout
    if layout is None:
        raise UnsupportedOp(f"dot needs a layout of {value!r}")
    return layout


def _turn(depth: int, wanted: int) -> int:
    """How many k a turn takes, of ``depth``, for a thread that reads ``wanted`` elements for each."""
    turn = min(depth, _DEEPEST)
    while turn > 1 and turn * wanted > _READ_AT_ONCE:
        turn //= 2
    return turn


def _read(state: Lowering, side: _Side, k: str, turn: int, to: Scalar) -> Iterator[tuple[tuple[int, int], str]]:
    """What a thread needs for ``turn`` k from ``k`` on, by coordinate and k, as the accumulator's type ``to``."""
    elem = side.value.type.elem
    depth = side.shared.shape[1 - side.outer]
    bases = tuple(side.place(0, 1 << bit) if 1 << bit >= turn else 0 for bit in range(depth.bit_length() - 1))
    row, reach = state.emit_linear(k, bases), side.reach | reach_of(bases)
    base = row if side.thread == "0" else side.thread
    if "0" not in (row, side.thread):
        how = "xor" if side.reach & reach_of(bases) else "or disjoint"
        base = state.text.op(f"{how} i32 {side.thread}, {row}")
    known: dict[int, str] = {}
    fixed = 0 if side.start.startswith("%") else int(side.start)
    for group in _vectors(side, turn):
        constant = side.place(*group[0])
        xored = constant & reach
        if xored not in known:
            offset = state.add_bits(base, reach, xored)
            known[xored] = state.shared(offset if fixed or side.start == "0" else state.plus(side.start, offset))
        address = known[xored]
        if added := fixed + (constant & ~reach):
            address = state.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {address}, i32 {added}")
        loaded = load_shared(state, elem, len(group), address)
        for where, element in zip(group, loaded, strict=True):
            yield where, convert(state, element, side.value.type.scalar, to)


def _vectors(side: _Side, turn: int) -> list[list[tuple[int, int]]]:
    """The elements of a turn, (coordinate, k), in groups that lie one after another."""
    longest = VECTOR_BYTES // side.size
    along_k = _run([side.place(0, 1 << bit) // side.size for bit in range(turn.bit_length() - 1)], longest)
    if along_k > 1:
        return [[(c, j + i) for i in range(along_k)] for c in side.wanted for j in range(0, turn, along_k)]
    bits = side.shared.shape[side.outer].bit_length() - 1
    vector = _run([side.place(1 << bit, 0) // side.size for bit in range(bits)], longest)
    present = set(side.wanted)
    while vector > 1 and (
        side.reach & (vector * side.size - 1)
        or any(c // vector * vector + i not in present for c in side.wanted for i in range(vector))
    ):
        vector //= 2
    return [[(c + i, j) for i in range(vector)] for c in side.wanted if c % vector == 0 for j in range(turn)]


def _run(places: list[int], longest: int) -> int:
    """How many elements follow each other along an axis whose bits lie at ``places``."""
    run = 1
    for place in places:
        if place != run or run == longest:
            break
        run *= 2
    return run


def _multiply_add(state: Lowering, scalar: Scalar, x: str, y: str, total: str) -> str:
    name = register_type(scalar)
    if scalar.is_float:
        return intrinsic(state, "fma", name, x, y, total)
    product = state.text.op(f"mul {name} {x}, {y}")
    return state.text.op(f"add {name} {total}, {product}")
