"""How each operation with a wish about layouts is re-emitted; everything else follows the general case.

One that stays what it is is cloned, so that its attributes come along. Importing this module registers the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from ...ir.core import Op, Value
from ...ir.types import F16, F32, Tile
from ...layout import (
    LinearLayout,
    WarpShuffle,
    coalesced_vectors,
    contiguous_registers,
    plan_conversion,
    share_out,
    slice_layout,
    wgmma_accumulator,
)
from ...tile.assembly import EffectfulAssembly, InlineAssembly
from ...tile.control import Condition, For, If, While, Yield
from ...tile.elementwise import Cast, Constant
from ...tile.map import MapElementwise
from ...tile.matmul import Dot
from ...tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ...tile.movement import Gather
from ...tile.reduction import Histogram, Reduce, Scan
from ...tile.shape import Join, Permute
from ..asynchronous import Deposit, Fetch, FetchTile, Put, RingBuffer, Roles, Slot, Wgmma
from ..ops import Mma, VectorLoad, VectorStore, VectorUpdate
from .coalesce import access_of, default_layout, merge, order_of_fetch, reaches_sectors, vector_of
from .homes import Family
from .reduction import bits_of
from .relayout import RULES, Relayout, Rule
from .scan import scan_layout
from .shared_operands import first_operand, operand_of_threads, shared_operand
from .tensorcore import choose, choose_warp_group, multiply_add_layout, sums_in_halves
from .views import is_view

OpT = TypeVar("OpT", bound=Op)


def _rule(
    kind: type[OpT],
) -> Callable[[Callable[[Relayout, OpT], None]], Callable[[Relayout, OpT], None]]:
    def register(rule: Callable[[Relayout, OpT], None]) -> Callable[[Relayout, OpT], None]:
        RULES[kind] = cast(Rule, rule)
        return rule

    return register


# Memory ------------------------------------------------------------------------------------------------------


def _access_layout(state: Relayout, op: Load | Store | AtomicRMW | AtomicCAS, value: Value) -> LinearLayout | None:
    """The layout for a memory operation: that of the family of ``value`` if it reads memory in the same order."""
    if not op.pointer.type.rank:
        return None
    if state.costs.exists_once(op.pointer):
        return state.homes.layout(op.pointer)
    access = access_of(op, state.facts)
    if state.costs.exists_once(value):
        family = state.homes.family(value)
        layout = state.homes.layout(value)
        known = family.accesses + family.stores
        if family.accumulator is None and known:
            order = max(known, key=lambda a: a.vector).order
            if access.vector == 1 or access.order == order:
                return _in_whole_sectors(state, op, family, layout) if isinstance(op, Store) else layout
    return merge([access], op.pointer.type.shape, state.warps)


def _in_whole_sectors(state: Relayout, store: Store, family: Family, layout: LinearLayout) -> LinearLayout:
    """The layout for a store of what lies as ``layout``: another one for results of scans, and for what is interleaved
    or transposed, of which warps would store parts of sectors, where they can fill them."""
    if family.accesses or not any(map(_is_strewn, family.derived)):
        return layout
    access, size = access_of(store, state.facts), store.value.type.elem.bytes
    coalesced = merge([access], store.pointer.type.shape, state.warps)
    fills, could = (reaches_sectors(each, access, size) for each in (layout, coalesced))
    return coalesced if could and not fills and not access.scattered else layout


def _is_strewn(value: Value) -> bool:
    """Whether a thread has many neighbouring elements of ``value`` that are none in memory, since it is a scan, made of
    tiles joined, or transposed."""
    op = value.op
    while op is not None and is_view(op) and not isinstance(op, Join | Permute):
        op = op.operands[0].op
    return isinstance(op, Scan | Join | Permute)


@_rule(Load)
def _load(state: Relayout, load: Load) -> None:
    layout = _access_layout(state, load, load.result)
    pointer = state.demand(load.pointer, layout)
    mask = state.demand(load.mask, layout) if load.mask is not None else None
    other = state.demand(load.other, layout) if load.other is not None else None
    vector, axis = (1, 0) if layout is None else vector_of(load, layout, state.facts)
    made = VectorLoad(pointer, mask, other, load.cache, load.eviction, load.volatile, vector, axis)
    state.emit(made, load)


@_rule(Store)
def _store(state: Relayout, store: Store) -> None:
    layout = _access_layout(state, store, store.value)
    if layout is not None and not state.costs.exists_once(store.pointer):
        layout = _shared_out(state, store, layout)
    pointer = state.demand(store.pointer, layout)
    value = state.demand(store.value, layout)
    mask = state.demand(store.mask, layout) if store.mask is not None else None
    vector, axis = (1, 0) if layout is None else vector_of(store, layout, state.facts)
    state.emit(VectorStore(pointer, value, mask, store.cache, store.eviction, vector, axis), store)


def _shared_out(state: Relayout, store: Store, layout: LinearLayout) -> LinearLayout:
    """The layout in which threads that hold copies, as those of results of reductions do, store a part each."""
    if not state.costs.exists_once(store.value) or state.natural(store.value) != layout:
        return layout
    vector, _ = vector_of(store, layout, state.facts)
    shared = share_out(layout, vector.bit_length() - 1)
    plan = plan_conversion(layout, shared, bits_of(store.value.type))
    return shared if isinstance(plan, WarpShuffle) and not plan.shuffles else layout


@_rule(AtomicRMW)
def _atomic_rmw(state: Relayout, op: AtomicRMW) -> None:
    layout = _access_layout(state, op, op.value)
    state.emit(op.clone({v: state.demand(v, layout) for v in op.operands}), op)


@_rule(VectorUpdate)
def _vector_update(state: Relayout, op: VectorUpdate) -> None:
    layout = _access_layout(state, op, op.value)
    vector, axis = (1, 0) if layout is None else vector_of(op, layout, state.facts)
    made = op.clone({v: state.demand(v, layout) for v in op.operands}, vector=vector, axis=axis)
    state.emit(made, op)


@_rule(AtomicCAS)
def _atomic_cas(state: Relayout, op: AtomicCAS) -> None:
    layout = _access_layout(state, op, op.result)
    state.emit(op.clone({v: state.demand(v, layout) for v in op.operands}), op)


# Reductions --------------------------------------------------------------------------------------------------


def separable(layout: LinearLayout, axis: int) -> bool:
    """Whether every hardware bit moves along ``axis`` only, or not along it at all."""
    bases = (*layout.register, *layout.lane, *layout.warp)
    return all(not basis[axis] or sum(map(bool, basis)) == 1 for basis in bases)


def _reduction_layout(state: Relayout, inputs: tuple[Value, ...], axis: int) -> LinearLayout:
    layout = state.natural(inputs[0])
    return layout if separable(layout, axis) else default_layout(inputs[0], state.warps)


@_rule(Reduce)
def _reduce(state: Relayout, reduce: Reduce) -> None:
    layout = _reduction_layout(state, reduce.inputs, reduce.axis)
    inputs = tuple(state.demand(v, layout) for v in reduce.inputs)
    made = reduce.clone({}, inputs=inputs)
    if made.results[0].type.rank:
        kept = slice_layout(layout, reduce.axis)
        for result in made.results:
            result.type = result.type.with_layout(kept)
    state.emit(made, reduce)


@_rule(Scan)
def _scan(state: Relayout, scan: Scan) -> None:
    first = scan.inputs[0]
    layout = scan_layout(first.type.shape, scan.axis, state.warps, state.natural(first))
    inputs = tuple(state.demand(v, layout) for v in scan.inputs)
    made = scan.clone({}, inputs=inputs)
    for result in made.results:
        result.type = result.type.with_layout(layout)
    state.emit(made, scan)


@_rule(Histogram)
def _histogram(state: Relayout, histogram: Histogram) -> None:
    layout = state.natural(histogram.x)
    mask = state.demand(histogram.mask, layout) if histogram.mask is not None else None
    made = histogram.clone({}, x=state.demand(histogram.x, layout), mask=mask)
    made.result.type = made.result.type.with_layout(state.homes.layout(histogram.result))
    state.emit(made, histogram)


@_rule(MapElementwise)
def _map(state: Relayout, op: MapElementwise) -> None:
    layout = state.homes.layout(op.results[0])
    inputs = tuple(state.demand(v, layout) for v in op.inputs)
    state.emit(op.clone({}, inputs=inputs), op)


def _assembly(state: Relayout, op: InlineAssembly) -> None:
    layout = state.home(op.results[0])
    state.emit(op.clone({v: state.demand(v, layout) for v in op.inputs}), op)


for _kind in (InlineAssembly, EffectfulAssembly):
    _rule(_kind)(_assembly)


@_rule(Gather)
def _gather(state: Relayout, gather: Gather) -> None:
    src = state.demand(gather.src, state.natural(gather.src))
    index = state.demand(gather.index, state.homes.layout(gather.result))
    state.emit(gather.clone({}, src=src, index=index), gather)


# Matrix products ---------------------------------------------------------------------------------------------


@_rule(Dot)
def _dot(state: Relayout, dot: Dot) -> None:
    group = choose_warp_group(dot, state.target, state.schedule)
    core = None if group else choose(dot, state.target, state.warps)
    if group is not None:
        accumulator = group.accumulator
    elif core is not None:
        accumulator = core.accumulator
    else:
        accumulator = multiply_add_layout(dot.acc.type.shape, state.warps)
    acc = state.demand(dot.acc, accumulator)
    narrow = acc.type.elem
    if narrow == F16 and not (sums_in_halves(dot) and (group or core)):
        acc = _widened(state, acc)
    made: Dot | Mma | Wgmma
    if group is not None:
        b = shared_operand(state, dot.b, k_axis=0)
        made = Wgmma(first_operand(state, dot.a, group.a), b, acc, group.columns)
    elif core is not None:
        a, b = state.demand(dot.a, core.a), state.demand(dot.b, core.b)
        made = Mma(a, b, acc, core.instruction, dot.precision)
    else:
        made = Dot(operand_of_threads(state, dot.a), operand_of_threads(state, dot.b), acc, dot.precision)
    if acc.type.elem == narrow:
        state.emit(made, dot)
        return
    made.location = dot.location
    state.append(made)
    state.emit(Cast(made.result, narrow), dot)


def _widened(state: Relayout, acc: Value) -> Value:
    """``acc`` in f32; zeros stay zeros that nobody needs in registers."""
    number = acc.op.value if isinstance(acc.op, Constant) else None
    wide = Cast(acc, F32) if number is None else Constant(number, acc.type.with_elem(F32))
    state.append(wide)
    return wide.result


# Rings and roles ---------------------------------------------------------------------------------------------


@_rule(RingBuffer)
def _ring(state: Relayout, op: RingBuffer) -> None:
    state.emit(op.clone({}), op)


@_rule(Slot)
def _slot(state: Relayout, op: Slot) -> None:
    state.emit(op.clone({}, ring=state.demand(op.ring, None), pipe=state.demand(op.pipe, None)), op)


@_rule(Deposit)
def _deposit(state: Relayout, op: Deposit) -> None:
    value = state.demand(op.value, state.natural(op.value))
    made = op.clone({}, ring=state.demand(op.ring, None), pipe=state.demand(op.pipe, None), value=value)
    state.emit(made, op)


@_rule(Fetch)
def _fetch(state: Relayout, op: Fetch) -> None:
    state.emit(op.clone({v: state.demand(v, None) for v in op.operands}), op)


@_rule(FetchTile)
def _fetch_tile(state: Relayout, op: FetchTile) -> None:
    layout = state.homes.layout(op.pointer) if state.costs.exists_once(op.pointer) else None
    if layout is None or contiguous_registers(layout, op.axis) < op.vector:
        layout = coalesced_vectors(op.pointer.type.shape, state.warps, op.vector, order_of_fetch(op).order)
    env = {v: state.demand(v, layout if v.type.rank else None) for v in (op.pointer, op.mask) if v is not None}
    env |= {v: state.demand(v, None) for v in (op.ring, op.pipe)}
    state.emit(op.clone(env), op)


@_rule(Put)
def _put(state: Relayout, op: Put) -> None:
    env = {v: state.demand(v, None) for v in op.operands if v is not op.value}
    shape = op.value.type.shape
    layout = state.natural(op.value) if op.rows == shape[0] else wgmma_accumulator(shape, state.warps)
    env[op.value] = state.demand(op.value, layout)
    state.emit(op.clone(env, parts=_parts(op, layout)), op)


def _parts(put: Put, layout: LinearLayout) -> int:
    """In how many parts a box may be written: all threads must have a share of each part, by the same registers."""
    shared = put.place.shared
    if shared is None:
        return 1
    inverse, parts = shared.inverse(), put.parts
    reach = max((inverse(flat) for flat in (*layout.flat_lane, *layout.flat_warp)), default=0)
    while parts > 1 and reach >= put.place.size // parts:
        parts //= 2
    return parts


@_rule(Roles)
def _roles(state: Relayout, op: Roles) -> None:
    producer = state.nested(op.producer, [], [])
    consumer = state.nested(op.consumer, [], [])
    state.emit(op.clone({}, producer=producer, consumer=consumer), op)


# Control flow ------------------------------------------------------------------------------------------------


def _placed(state: Relayout, value: Value) -> Tile:
    """The type in which ``value`` travels through a region's boundary."""
    return value.type.with_layout(state.home(value))


@_rule(For)
def _for(state: Relayout, loop: For) -> None:
    carried = [_placed(state, r) for r in loop.results]
    inits = tuple(state.demand(v, t.layout) for v, t in zip(loop.inits, carried, strict=True))
    lower, upper, step = (state.demand(v, None) for v in (loop.lower, loop.upper, loop.step))
    body = state.nested(loop.body, [lower.type, *carried], carried)
    state.emit(loop.clone({}, lower=lower, upper=upper, step=step, inits=inits, body=body), loop)


@_rule(While)
def _while(state: Relayout, loop: While) -> None:
    carried = [_placed(state, r) for r in loop.results]
    inits = tuple(state.demand(v, t.layout) for v, t in zip(loop.inits, carried, strict=True))
    before = state.nested(loop.before, carried, carried)
    body = state.nested(loop.body, carried, carried)
    state.emit(While(inits, before, body), loop)


@_rule(If)
def _if(state: Relayout, branch: If) -> None:
    condition = state.demand(branch.condition, None)
    given = [_placed(state, r) for r in branch.results]
    then = state.nested(branch.then, [], given)
    otherwise = state.nested(branch.otherwise, [], given)
    state.emit(If(condition, then, otherwise), branch)


@_rule(Yield)
def _yield(state: Relayout, end: Yield) -> None:
    state.append(Yield(_leaving(state, end.values)))


@_rule(Condition)
def _condition(state: Relayout, end: Condition) -> None:
    condition = state.demand(end.condition, None)
    state.append(Condition(condition, _leaving(state, end.values)))


def _leaving(state: Relayout, values: tuple[Value, ...]) -> tuple[Value, ...]:
    wanted = state.leaving
    return tuple(state.demand(v, t.layout) for v, t in zip(values, wanted, strict=True))
