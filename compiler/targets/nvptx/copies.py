"""Copies of boxes into shared memory: by the copy engine (``cp.async.bulk.tensor``) or by threads (``cp.async``)."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...gpu.asynchronous import Drain, Fetch, FetchTile, GridSize, Put
from ...gpu.streams.descriptors import box_order
from ...hardware import WARPS_PER_GROUP
from ...ir.core import Value
from ...ir.types import Tile
from ...layout import (
    LinearLayout,
    MatrixAccess,
    SharedAccess,
    coalesced_vectors,
    plan_matrix_access,
    plan_shared_access,
    swizzle_of,
)
from ..simt.convert import addresses, store_matrices, store_registers
from ..simt.lowering import Lowering, reach_of, rule
from ..simt.registers import GLOBAL_POINTER, register_type
from .machine import RULES
from .pipes import barrier_address, filling, group_leader, leader, meet
from .uniform import uniform_warp_bits


@rule(Fetch, RULES)
def _fetch(state: Lowering, op: Fetch) -> None:
    place = _acquired(state, op)
    if op.descriptor >= 0:
        _bulk_copies(state, op, place)
    else:
        _thread_copies(state, op, place)


@rule(FetchTile, RULES)
def _fetch_tile(state: Lowering, op: FetchTile) -> None:
    """Every thread copies vectors from where its pointers say; nothing is read where the mask is false."""
    tile, layout = op.ring.type, op.pointer.type.layout
    if tile.shared is None or layout is None:
        raise UnsupportedOp("gpu.fetch_tile needs a layout and a ring in shared memory", location=op.location)
    place = _acquired(state, op)
    access = plan_shared_access(layout, tile.shared, tile.elem.bits)
    to = addresses(state, access, place)
    alone = state.only_thread(layout)
    pointers, mask = state.values[op.pointer], state.values[op.mask] if op.mask is not None else None
    width = op.vector * tile.elem.bytes
    for number, group in enumerate(access.registers):
        for part in range(0, len(group), op.vector):
            valid = str(width)
            if mask is not None:
                valid = state.text.op(f"select i1 {mask[group[part]]}, i32 {width}, i32 0")
            target = _shifted(state, to(number), part * tile.elem.bytes)
            _copy(state, target, pointers[group[part]], valid, width, alone)


def _shifted(state: Lowering, place: str, offset: int) -> str:
    """The address in shared memory (i32) ``offset`` bytes behind ``place``."""
    if offset:
        place = state.text.op(f"getelementptr inbounds i8, ptr addrspace(3) {place}, i32 {offset}")
    return state.text.op(f"ptrtoint ptr addrspace(3) {place} to i32")


def _acquired(state: Lowering, op: Fetch | FetchTile) -> str:
    """The first byte of the slot to fill."""
    cursor = filling(state, op.pipe)
    offset = state.text.op(f"mul nuw nsw i32 {cursor.slot}, {op.ring.type.size * op.ring.type.elem.bytes}")
    return state.plus(offset, state.places[op.ring])


def contiguous_axis(tile: Tile) -> int:
    """The axis of a tile in shared memory along which elements are neighbours."""
    shared = tile.shared
    if shared is None:
        raise UnsupportedOp("a ring lies in shared memory")
    return next(axis for axis, step in enumerate(shared.offset[0]) if step)


def _panel(tile: Tile, axis: int) -> int:
    """Elements in a row of the swizzle, or in a whole row: what one copy brings along the contiguous axis."""
    swizzle = swizzle_of(tile.shared, axis, tile.elem.bits) if tile.shared is not None else None
    if swizzle is None:
        raise UnsupportedOp("the copy engine cannot write this layout")
    return swizzle // tile.elem.bytes or tile.shape[axis]


def _bulk_copies(state: Lowering, op: Fetch, place: str) -> None:
    """One copy for each panel; coordinates go innermost first (PTX ISA, "cp.async.bulk.tensor")."""
    tile = op.ring.type
    axis = contiguous_axis(tile)
    order = box_order(len(op.strides), tile.rank, axis)
    panel = _panel(tile, axis)
    barrier = filling(state, op.pipe).full()
    speaks = leader(state)
    outer = [_index(state, op.offsets[d]) for d in reversed(order[:-1])]
    inner = _index(state, op.offsets[order[-1]])
    rank = len(order)
    places = ", ".join(f"${2 + i}" for i in range(rank))
    text = (
        f"@${3 + rank} cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[$0], [$1, {{{places}}}], [${2 + rank}];"
    )
    constraints = ",".join(["r", "l", *["r"] * rank, "r", "b"]) + ",~{memory}"
    bytes_of_panel = tile.size // tile.shape[axis] * panel * tile.elem.bytes
    for number in range(tile.shape[axis] // panel):
        first = state.text.op(f"add i32 {inner}, {number * panel}") if number else inner
        to = barrier_address(state, state.plus(place, number * bytes_of_panel))
        operands = [("i32", to), ("ptr", f"%d{op.descriptor}")]
        operands += [("i32", c) for c in (first, *outer)]
        state.text.asm([], text, constraints, [*operands, ("i32", barrier), ("i1", speaks)])


def _index(state: Lowering, value: Value) -> str:
    """An index as an i32: coordinates of the copy engine have 32 bits. A kernel that needs more stops."""
    name, bits = state.scalar(value), value.type.scalar.bits
    if bits <= 32:
        return name if bits == 32 else state.text.op(f"sext i{bits} {name} to i32")
    narrow = state.text.op(f"trunc i{bits} {name} to i32")
    again = state.text.op(f"sext i32 {narrow} to i{bits}")
    lost = state.text.op(f"icmp ne i{bits} {again}, {name}")
    state.text.asm([], "@$0 trap;", "b", [("i1", lost)])
    return narrow


@rule(Put, RULES)
def _put(state: Lowering, op: Put) -> None:
    """Part by part: wait until memory is free, write, let one thread begin the copies."""
    shared, layout = op.place.shared, op.value.type.layout
    if shared is None or layout is None:
        raise UnsupportedOp("gpu.put needs a layout and a place", location=op.location)
    bits = op.place.elem.bits
    size = op.place.size * op.place.elem.bytes
    write = plan_matrix_access(layout, shared, bits) or plan_shared_access(layout, shared, bits)
    start = state.scratch(op)
    alone = op.rows < op.place.shape[0]
    if alone and _is_shared(state, op):
        # Other groups may still read what was in this memory, as may copies that they have begun.
        state.text.asm([], f"@$0 {_WAIT_READ}", "b,~{memory}", [("i1", group_leader(state))])
        state.barrier()
    for part in range(op.parts):
        first, end = part * size // op.parts, (part + 1) * size // op.parts
        wait = _WAIT if op.ordered else _WAIT_READ
        state.text.asm([], f"@$0 {wait}", "b,~{memory}", [("i1", group_leader(state))])
        meet(state, alone)
        _write_part(state, op, write, range(first, end), start)
        state.machine.publish_shared(state)
        meet(state, alone)
        _copy_part(state, op, range(first, end), start, alone)


def _is_shared(state: Lowering, op: Put) -> bool:
    """Whether something else lies in the same memory at another time."""
    places = state.allocation.places
    return any(other is not op and place.overlaps(places[op]) for other, place in places.items())


# What was read may be overwritten; what was waited for has arrived.
_WAIT_READ, _WAIT = "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0;"


def _write_part(state: Lowering, op: Put, write: MatrixAccess | SharedAccess, part: range, start: int) -> None:
    """Store those registers of the value that lie in ``part`` (bytes of the whole tile)."""
    shift = start - part.start
    if isinstance(write, MatrixAccess):
        store_matrices(state, op.value, write, part, shift)
        return
    to = addresses(state, write, shift)
    for number, group in enumerate(write.registers):
        if write.offsets[number] in part:
            store_registers(state, op.value, group, to(number))


def _copy_part(state: Lowering, op: Put, part: range, start: int, alone: bool) -> None:
    """Begin to copy what lies in ``part``; if ``alone``, the rows of this warp's group."""
    tile = op.place
    axis = contiguous_axis(tile)
    panel = _panel(tile, axis)
    order = box_order(len(op.strides), tile.rank, axis)
    rank = len(order)
    places = ", ".join(f"${1 + i}" for i in range(rank))
    text = f"@${2 + rank} cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$0, {{{places}}}], [${1 + rank}];"
    constraints = ",".join(["l", *["r"] * rank, "r", "b"]) + ",~{memory}"
    row_bytes = panel * tile.elem.bytes
    bytes_of_panel = tile.size // tile.shape[axis] * row_bytes
    speaks = group_leader(state) if alone else leader(state)
    inner = _index(state, op.offsets[order[-1]])
    outer = [_index(state, op.offsets[d]) for d in reversed(order[:-1])]
    groups = uniform_warp_bits(state, [0, 0, *(op.rows << i for i in range(_group_bits(state)))]) if alone else "0"
    for row in range(0, tile.shape[0], op.rows * (1 << _group_bits(state) if alone else 1)) if axis else (0,):
        # Rows run along the innermost of the outer dimensions.
        begin = state.text.op(f"add i32 {outer[0]}, {state.plus(groups, row)}") if alone else outer[0]
        offset = state.text.op(f"mul nuw nsw i32 {state.plus(groups, row)}, {row_bytes}") if alone else "0"
        for number in range(part.start // bytes_of_panel, part.stop // bytes_of_panel):
            first = state.text.op(f"add i32 {inner}, {number * panel}") if number else inner
            place = barrier_address(state, state.plus(offset, start + number * bytes_of_panel - part.start))
            operands = [("ptr", f"%d{op.descriptor}"), *(("i32", c) for c in (first, begin, *outer[1:]))]
            state.text.asm([], text, constraints, [*operands, ("i32", place), ("i1", speaks)])
    state.text.asm([], "@$0 cp.async.bulk.commit_group;", "b,~{memory}", [("i1", speaks)])


def _group_bits(state: Lowering) -> int:
    return (state.warps // WARPS_PER_GROUP).bit_length() - 1


@rule(Drain, RULES)
def _drain(state: Lowering, op: Drain) -> None:
    state.text.asm([], f"@$0 {_WAIT_READ}", "b,~{memory}", [("i1", group_leader(state))])


@rule(GridSize, RULES)
def _grid_size(state: Lowering, op: GridSize) -> None:
    state.define(op.result, [f"%g{op.axis}"])


# Copies by threads -------------------------------------------------------------------------------------------


def _thread_copies(state: Lowering, op: Fetch, place: str) -> None:
    """Every thread copies vectors of ``width`` bytes; what lies outside the array is filled with zeros."""
    tile = op.ring.type
    axis = contiguous_axis(tile)
    size = tile.elem.bytes
    vector = op.width // size
    layout = coalesced_vectors(tile.shape, state.warps, vector, (axis, 1 - axis))
    if tile.shared is None:
        raise UnsupportedOp("a ring lies in shared memory")
    access = plan_shared_access(layout, tile.shared, tile.elem.bits)
    box = _Box(state, op, layout, axis)
    alone = state.only_thread(layout)
    to = addresses(state, access, place)
    for number, group in enumerate(access.registers):
        for part in range(0, len(group), vector):
            source, valid = box(group[part], vector)
            _copy(state, _shifted(state, to(number), part * size), source, valid, vector * size, alone)


def _copy(state: Lowering, to: str, source: str, valid: str, width: int, predicate: str | None) -> None:
    cache = "cg" if width == 16 else "ca"
    text = f"cp.async.{cache}.shared.global [$0], [$1], {width}, $2;"
    operands = [("i32", to), (GLOBAL_POINTER, source), ("i32", valid)]
    constraints = "r,l,r"
    if predicate is not None:
        text, constraints = f"@$3 {text}", constraints + ",b"
        operands.append(("i1", predicate))
    state.text.asm([], text, constraints + ",~{memory}", operands)


class _Box:
    """Where the elements of a box lie in memory, and how many bytes of a vector are inside the array."""

    def __init__(self, state: Lowering, op: Fetch, layout: LinearLayout, axis: int) -> None:
        self.state = state
        self.op = op
        self.layout = layout
        self.axis = axis
        self.lead = len(op.strides) - 2
        self.size = op.ring.type.elem.bytes
        self.strides = [self._wide(v) for v in op.strides]
        self.offsets = [self._wide(v) for v in op.offsets]
        self.sizes = [self._size(v) if checked else "" for v, checked in zip(op.sizes, op.checked, strict=True)]
        # What does not depend on the thread is one sum; the thread's part does not change from slot to slot.
        self.start = self._sum([self._product(o, s) for o, s in zip(self.offsets, self.strides, strict=True)])
        outside = [self._outside(self.offsets[d], self.sizes[d]) for d in range(self.lead) if op.checked[d]]
        self.absent = outside[0] if outside else None
        for other in outside[1:]:
            self.absent = state.text.op(f"or i1 {self.absent}, {other}")

    def __call__(self, register: int, vector: int) -> tuple[str, str]:
        """Address of a vector and its valid bytes (i32)."""
        text = self.state.text
        coordinates = self.layout.register_coordinates()[register]
        terms, absent = [], self.absent
        valid = str(vector * self.size)
        for axis, constant in enumerate(coordinates):
            thread = self.state.coordinate(self.layout, axis)
            bases = [b[axis] for b in (*self.layout.lane, *self.layout.warp)]
            own = self.state.add_bits(thread, reach_of(bases), constant)
            wide = text.op(f"zext i32 {own} to i64")
            dimension = self.lead + axis
            terms.append(self._product(wide, self.strides[dimension]))
            if not self.op.checked[dimension]:
                continue
            index = text.op(f"add i64 {self.offsets[dimension]}, {wide}")
            if axis == self.axis and not self.op.whole:
                valid = self._inside(index, self.sizes[dimension], vector)
            else:
                beyond = self._outside(index, self.sizes[dimension])
                absent = beyond if absent is None else text.op(f"or i1 {absent}, {beyond}")
        if absent is not None:
            valid = text.op(f"select i1 {absent}, i32 0, i32 {valid}")
        elements = self._sum([self.start, *terms])
        element = register_type(self.op.ring.type.elem)
        return text.op(
            f"getelementptr {element}, {GLOBAL_POINTER} {self.state.scalar(self.op.base)}, i64 {elements}"
        ), valid

    def _wide(self, value: Value) -> str:
        return convert_to_i64(self.state, value)

    def _size(self, value: Value) -> str:
        """An extent, 0 where it is negative: that of what is left behind a moved base may be."""
        size = self._wide(value)
        if not size.startswith("%"):
            return str(max(0, int(size)))
        none = self.state.text.op(f"icmp slt i64 {size}, 0")
        return self.state.text.op(f"select i1 {none}, i64 0, i64 {size}")

    def _product(self, x: str, y: str) -> str:
        if "1" in (x, y):
            return y if x == "1" else x
        return "0" if "0" in (x, y) else self.state.text.op(f"mul i64 {x}, {y}")

    def _sum(self, terms: list[str]) -> str:
        total = "0"
        for term in terms:
            if term != "0":
                total = term if total == "0" else self.state.text.op(f"add i64 {total}, {term}")
        return total

    def _outside(self, index: str, size: str) -> str:
        """Below zero or not below the size, which is not negative: one comparison without signs."""
        return self.state.text.op(f"icmp uge i64 {index}, {size}")

    def _inside(self, index: str, size: str, vector: int) -> str:
        """Bytes of the vector at ``index``, which is aligned to it, that are inside the array."""
        text = self.state.text
        left = text.op(f"sub i64 {size}, {index}")
        few = text.op(f"icmp slt i64 {left}, {vector}")
        left = text.op(f"select i1 {few}, i64 {left}, i64 {vector}")
        none = text.op(f"icmp slt i64 {left}, 0")
        before = text.op(f"icmp slt i64 {index}, 0")
        none = text.op(f"or i1 {none}, {before}")
        left = text.op(f"select i1 {none}, i64 0, i64 {left}")
        narrow = text.op(f"trunc i64 {left} to i32")
        return narrow if self.size == 1 else text.op(f"mul nuw nsw i32 {narrow}, {self.size}")


def convert_to_i64(state: Lowering, value: Value) -> str:
    """A scalar integer as an i64."""
    scalar = value.type.scalar
    name = state.scalar(value)
    if scalar.bits == 64 or not name.startswith("%"):
        return name
    return state.text.op(f"{'sext' if scalar.is_signed else 'zext'} i{scalar.bits} {name} to i64")
