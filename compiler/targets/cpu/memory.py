"""Loads, stores and atomics. Masked-off elements never touch memory."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Op, Value
from ...ir.types import Element, Pointer, Scalar
from ...llvm.typed import Emitter, Typed, constant, overload_name, vector_type
from ...tile import blocks, memory
from ...tile.assembly import EffectfulAssembly, InlineAssembly
from .arena import Stored
from .chunk import Affine, Chunk, Coords, Uniform, Vector, llvm_element, memory_element
from .emission import Emission
from .formats import narrow, widen
from .lower import CpuLowering
from .nests import for_each_chunk, materialise
from .pending import settle_loads
from .rule_sets import statements
from .spans import in_turns
from .versions import Detour, Nested

for _block in (blocks.BlockLoad, blocks.BlockStore):
    statements.unsupported(_block, "it is expanded to pointers before")
for _assembly in (InlineAssembly, EffectfulAssembly):
    statements.unsupported(_assembly, "inline assembly is that of GPUs")


def load_chunk(emission: Emission, op: memory.Load, coords: Coords) -> Chunk:
    """The loaded elements at a chunk: one vector access where the pointers are contiguous, else a gather."""
    pointer = emission.chunk(op.pointer, coords)
    mask = emission.chunk(op.mask, coords) if op.mask is not None else None
    other = emission.chunk(op.other, coords) if op.other is not None else None
    elem = op.result.type.elem
    present = [c for c in (pointer, mask, other) if c is not None]
    level = max(c.level for c in present)
    everywhere = [c for c in present if isinstance(c, Uniform)]
    if len(everywhere) == len(present):
        where, *rest = (c.value for c in everywhere)
        masked = rest[0] if mask is not None else None
        default = rest[1] if other is not None else None
        with emission.nest.at(level):
            return Uniform(load_scalar(emission.low, where, elem, masked, default), level)
    masks = emission.as_vector(mask) if mask is not None else None
    others = emission.as_vector(other) if other is not None else None
    contiguous = isinstance(pointer, Affine) and pointer.stride == elem.bytes
    vectors = None if contiguous else emission.as_vector(pointer)
    with emission.nest.at(level):
        if others is not None:
            others = emission.to_memory(others, elem)
        if isinstance(pointer, Affine) and contiguous:
            made = _load_vector(emission, pointer.base, elem, masks, others)
        else:
            made = emission.gather(vectors or pointer_base(pointer), elem, masks, others)
    return Vector(made, level)


def pointer_base(pointer: Chunk) -> Typed:
    """The pointer of lane 0 where lanes follow it or share it; a vector of pointers as it is."""
    return pointer.base if isinstance(pointer, Affine) else pointer.value


def load_scalar(
    low: CpuLowering, pointer: Typed, elem: Element, mask: Typed | None, other: Typed | None, *, volatile: bool = False
) -> Typed:
    """One element, or ``other`` (zero without it) where the mask is false. ``volatile``: read each time anew."""
    e, element = low.e, memory_element(elem)

    def read() -> Typed:
        made = e.load(element, pointer, elem.bytes, volatile=volatile)
        if llvm_element(elem) == "i1":
            return e.compare("ne", made, constant("i8", 0))
        return made

    if mask is None or mask.name == "true":
        return read()
    return _read_where(low, mask, read, other or constant(llvm_element(elem), 0))


def _read_where(low: CpuLowering, condition: Typed, read: Callable[[], Typed], fallback: Typed) -> Typed:
    """What ``read`` emits, executed where the scalar ``condition`` is true, else ``fallback``."""
    blocks = low.blocks
    before, active, after = blocks.here, blocks.new("active"), blocks.new("after")
    blocks.branch(condition, active, after)
    blocks.enter(active)
    made = read()
    blocks.jump(after)
    last = blocks.here
    blocks.enter(after)
    result = blocks.fresh(fallback.type, "m")
    blocks.phi(after, result, [(made, last), (fallback, before)])
    return result


def _load_vector(emission: Emission, base: Typed, elem: Element, mask: Typed | None, other: Typed | None) -> Typed:
    e, type = emission.e, vector_type(memory_element(elem), emission.lanes)
    if mask is None:
        return emission.from_memory(e.load(type, base, elem.bytes), elem)
    other = other or constant(type, 0)
    operands = [
        ("ptr", f"align {elem.bytes} {base.name}"),
        (mask.type, mask.name),
        (other.type, other.name),
    ]

    def read() -> Typed:
        return Typed(type, e.function.call(type, f"llvm.masked.load.{overload_name(type)}.p0", operands))

    # Processors suppress the fault of a lane that is off in a page that is not mapped, but in microcode, which takes
    # hundreds of cycles. Rows behind the end of an array are off as a whole: they need no access.
    some = e.function.call("i1", f"llvm.vector.reduce.or.v{emission.lanes}i1", [(mask.type, mask.name)])
    return emission.from_memory(_read_where(emission.low, Typed("i1", some), read, other), elem)


# Stores --------------------------------------------------------------------------------------------------------


@statements(memory.Store)
def store(low: CpuLowering, op: memory.Store) -> None:
    """A vector store where lanes are contiguous, else a scatter; masked-off lanes touch no memory.

    Where what is written may still have to be read, all is computed before anything is written.
    """
    if not op.pointer.type.rank:
        _store_scalar(low, op)
        return
    settle_loads(low, op)
    tile_shape = op.pointer.type.shape
    lanes = low.lanes(tile_shape, op.value.type.elem)
    operands = [(v, True) for v in (op.pointer, op.mask, op.value) if v is not None]

    def body(emission: Emission, coords: Coords) -> None:
        _store_chunk(emission, op, coords, emission.chunk(op.value, coords))

    alternating = in_turns(low, op)
    if alternating is None:
        for_each_chunk(low, operands, tile_shape, lanes, body)
        return
    aside = Stored(low.allocate(op.value), tile_shape)
    for_each_chunk(low, operands, tile_shape, lanes, body, detour=Detour(alternating, _computed_before(op, aside)))
    low.arena.free(aside.buffer)


def _computed_before(op: memory.Store, aside: Stored) -> Nested:
    """A nest that computes all of the value into ``aside``, and one that stores it from there."""

    def nest(emission: Emission) -> list[Typed]:
        rank = len(aside.shape)
        coords = emission.walk(aside.shape)
        emission.write(aside.buffer, op.value, emission.chunk(op.value, coords), coords)
        emission.unwind(rank)
        coords = emission.walk(aside.shape)
        _store_chunk(emission, op, coords, emission.read(aside, op.value.type.elem, coords))
        emission.unwind(rank)
        return []

    return nest


def _store_chunk(emission: Emission, op: memory.Store, coords: Coords, value: Chunk) -> None:
    low, elem = emission.low, op.value.type.elem
    pointer = emission.chunk(op.pointer, coords)
    mask = emission.vector(op.mask, coords) if op.mask is not None else None
    vector = emission.as_vector(value)
    depth = emission.nest.depth
    if emission.lanes == 1:
        with emission.nest.at(depth):
            store_scalar(low, pointer_base(pointer), vector, elem, mask)
        return
    contiguous = isinstance(pointer, Affine) and pointer.stride == elem.bytes
    where = pointer_base(pointer) if contiguous else emission.as_vector(pointer)
    with emission.nest.at(depth):
        _store_vector(emission, where, vector, elem, mask)


def _store_scalar(low: CpuLowering, op: memory.Store) -> None:
    settle_loads(low, op)
    mask = low.scalar(op.mask).value if op.mask is not None else None
    pointer, value = low.scalar(op.pointer).value, low.scalar(op.value).value
    store_scalar(low, pointer, value, op.value.type.elem, mask)


def store_scalar(low: CpuLowering, pointer: Typed, value: Typed, elem: Element, mask: Typed | None) -> None:
    """One element where the mask is true."""

    def write() -> None:
        held = low.e.cast("zext", value, "i8") if value.type == "i1" else value
        low.e.store(held, pointer, elem.bytes)

    when(low, mask, write)


def when(low: CpuLowering, mask: Typed | None, run: Callable[[], None]) -> None:
    """Emit what ``run`` emits, executed where the scalar mask is true."""
    if mask is None or mask.name == "true":
        run()
        return
    active, after = low.blocks.new("active"), low.blocks.new("after")
    low.blocks.branch(mask, active, after)
    low.blocks.enter(active)
    run()
    low.blocks.jump(after)
    low.blocks.enter(after)


def _store_vector(emission: Emission, where: Typed, value: Typed, elem: Element, mask: Typed | None) -> None:
    value = emission.to_memory(value, elem)
    if mask is None and not where.lanes:
        emission.e.store(value, where, elem.bytes)
        return
    mask = mask or constant(f"<{emission.lanes} x i1>", 1)
    operands = [
        (value.type, value.name),
        (where.type, f"align {elem.bytes} {where.name}"),
        (mask.type, mask.name),
    ]
    kind = "scatter" if where.lanes else "store"
    name = f"llvm.masked.{kind}.{overload_name(value.type)}.{overload_name(where.type)}"
    emission.e.function.call("void", name, operands)


# Scalar loads and atomics --------------------------------------------------------------------------------------


@statements(memory.Load)
def load(low: CpuLowering, op: memory.Load) -> None:
    """Scalar loads, and tile loads that are volatile: the others are made where they are used."""
    if op.result.type.rank:  # volatile: read here and now
        materialise(low, op.result)
        return
    mask = low.scalar(op.mask).value if op.mask is not None else None
    other = low.scalar(op.other).value if op.other is not None else None
    pointer = low.scalar(op.pointer).value
    low.set_scalar(op.result, load_scalar(low, pointer, op.result.type.elem, mask, other, volatile=op.volatile))


@statements(memory.Barrier)
def barrier(low: CpuLowering, op: memory.Barrier) -> None:
    """A program is one thread here and waits for nobody, but what it reads before it reads now."""
    settle_loads(low, op)


@statements(memory.GridWait, memory.LaunchDependents)
def ordered(low: CpuLowering, op: Op) -> None:
    """Launches are synchronous here: what came before has ended."""


@statements(memory.AtomicRMW)
def atomic_rmw(low: CpuLowering, op: memory.AtomicRMW) -> None:
    """One element after the other, masked-off ones left out."""

    def act(pointer: Typed, values: list[Typed]) -> Typed:
        return _read_modify_write(low, op, pointer, values[0])

    _atomic(low, op, op.pointer, [op.value], op.mask, act)


@statements(memory.AtomicCAS)
def atomic_cas(low: CpuLowering, op: memory.AtomicCAS) -> None:
    elem = op.value.type.elem

    def act(pointer: Typed, values: list[Typed]) -> Typed:
        return compare_exchange(low, op, pointer, values[0], values[1], elem)[0]

    _atomic(low, op, op.pointer, [op.expected, op.value], None, act)


def _atomic(
    low: CpuLowering,
    op: memory.AtomicRMW | memory.AtomicCAS,
    pointer: Value,
    values: list[Value],
    mask: Value | None,
    run: Callable[[Typed, list[Typed]], Typed],
) -> None:
    """Element by element, in order."""
    settle_loads(low, op)
    result, elem = op.results[0], op.results[0].type.elem
    if not pointer.type.rank:
        held = [low.scalar(v).value for v in values]
        masked = low.scalar(mask).value if mask is not None else None
        made = _masked_value(low, masked, lambda: run(low.scalar(pointer).value, held), elem)
        low.set_scalar(result, made)
        return
    wanted = bool(low.live.uses.get(result))
    buffer = low.allocate(result) if wanted else None

    def body(emission: Emission, coords: Coords) -> None:
        where = emission.vector(pointer, coords)
        held = [emission.vector(v, coords) for v in values]
        masked = emission.vector(mask, coords) if mask is not None else None
        with emission.nest.at(emission.nest.depth):
            made = _masked_value(low, masked, lambda: run(where, held), elem)
        if buffer is not None:
            emission.write(buffer, result, Uniform(made, emission.nest.depth), coords)

    operands = [v for v in (pointer, *values, mask) if v is not None]
    for_each_chunk(low, [(v, True) for v in operands], pointer.type.shape, 1, body)
    if buffer is not None:
        low.define_stored(result, buffer)


def _masked_value(low: CpuLowering, mask: Typed | None, run: Callable[[], Typed], elem: Element) -> Typed:
    if mask is None or mask.name == "true":
        return run()
    blocks = low.blocks
    before, active, after = blocks.here, blocks.new("active"), blocks.new("after")
    blocks.branch(mask, active, after)
    blocks.enter(active)
    made = run()
    last = blocks.here
    blocks.jump(after)
    blocks.enter(after)
    result = blocks.fresh(llvm_element(elem), "m")
    blocks.phi(after, result, [(made, last), (constant(llvm_element(elem), 0), before)])
    return result


_INTEGER_KINDS = {"add": "add", "and": "and", "or": "or", "xor": "xor", "xchg": "xchg"}
_ORDERS = {"relaxed": "monotonic"}


def _read_modify_write(low: CpuLowering, op: memory.AtomicRMW, pointer: Typed, value: Typed) -> Typed:
    elem = op.value.type.elem
    order = _ORDERS.get(op.semantics, op.semantics)
    if isinstance(elem, Pointer) or elem.is_integer:
        kind = _INTEGER_KINDS.get(op.kind)
        if kind is None:
            signed = isinstance(elem, Scalar) and elem.is_signed
            kind = op.kind if signed else f"u{op.kind}"
        text = f"atomicrmw {kind} {pointer}, {value} {order}, align {elem.bytes}"
        return Typed(value.type, low.function.op(text))
    return _float_update(low, op, pointer, value, elem)


def _float_update(low: CpuLowering, op: memory.AtomicRMW, pointer: Typed, value: Typed, elem: Scalar) -> Typed:
    """Compare-and-swap until nobody came between: one code for all float formats."""
    blocks, e = low.blocks, low.e
    first = e.load(value.type, pointer, elem.bytes)
    before, again, done = blocks.here, blocks.new("again"), blocks.new("done")
    blocks.jump(again)
    blocks.enter(again)
    seen = blocks.fresh(value.type, "old")
    following = combine_floats(e, op.kind, seen, value, elem)
    found, success = compare_exchange(low, op, pointer, seen, following, elem)
    last = blocks.here
    blocks.branch(success, done, again)
    blocks.phi(again, seen, [(first, before), (found, last)])
    blocks.enter(done)
    return found


def combine_floats(e: Emitter, kind: str, old: Typed, value: Typed, elem: Scalar) -> Typed:
    """What an atomic of ``kind`` leaves in memory."""
    if kind == "xchg":
        return value
    if kind == "add":
        return narrow(e, e.floating("fadd", widen(e, old, elem), widen(e, value, elem)), elem)
    if elem.bits == 16:
        return narrow(e, e.intrinsic(f"{kind}num", widen(e, old, elem), widen(e, value, elem)), elem)
    before = e.compare("slt", *(_total_order(e, x, elem) for x in ((value, old) if kind == "max" else (old, value))))
    return e.select(before, old, value)


def _total_order(e: Emitter, x: Typed, elem: Scalar) -> Typed:
    """A signed integer that orders floats as IEEE 754's totalOrder: below zero, larger bits are smaller numbers."""
    integer = f"i{elem.bits}"
    bits = e.cast("bitcast", x, integer)
    below_zero = e.binary("ashr", bits, constant(integer, elem.bits - 1))
    return e.binary("xor", bits, e.binary("lshr", below_zero, constant(integer, 1)))


def compare_exchange(
    low: CpuLowering,
    op: memory.AtomicRMW | memory.AtomicCAS,
    pointer: Typed,
    expected: Typed,
    value: Typed,
    elem: Element,
) -> tuple[Typed, Typed]:
    """cmpxchg on the bits; returns what was found and whether the exchange happened."""
    e = low.e
    order = _ORDERS.get(op.semantics, op.semantics)
    failure = {"acq_rel": "acquire", "release": "monotonic"}.get(order, order)
    integer = f"i{8 * elem.bytes}"
    bits = [x if x.type in ("ptr", integer) else e.cast("bitcast", x, integer) for x in (expected, value)]
    made = low.function.op(f"cmpxchg {pointer}, {bits[0]}, {bits[1]} {order} {failure}, align {elem.bytes}")
    pair = f"{{ {bits[0].type}, i1 }}"
    found = Typed(bits[0].type, low.function.op(f"extractvalue {pair} {made}, 0"))
    success = Typed("i1", low.function.op(f"extractvalue {pair} {made}, 1"))
    if found.type != expected.type:
        found = e.cast("bitcast", found, expected.type)
    return found, success
