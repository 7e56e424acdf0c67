"""Identities on control flow and on operations with effects."""

from __future__ import annotations

from ...ir.core import Block, Op, Value
from .. import control as c
from .. import debug, memory
from .numbers import trip_count
from .registry import Replacement, Rewriter, rule
from .rules import constant_of


@rule(c.If)
def if_constant(op: c.If, new: Rewriter) -> Replacement:
    """if true {a} else {b} -> a"""
    which = constant_of(op.condition)
    return None if which is None else new.inline(op.then if which else op.otherwise, ())


@rule(c.For)
def for_short(op: c.For, new: Rewriter) -> Replacement:
    """a for loop with no iteration -> its initial values; with one -> its body"""
    bounds = [constant_of(v) for v in (op.lower, op.upper, op.step)]
    if None in bounds:
        return None
    lower, upper, step = (int(b) for b in bounds if b is not None)
    trips = trip_count(lower, upper, step) if step else 0
    if trips == 0:
        return op.inits
    if trips > 1:
        return None
    return new.inline(op.body, (op.lower, *op.inits))


@rule(c.For, c.While)
def loop_invariant(op: c.For | c.While, new: Rewriter) -> Replacement:
    """a value that every iteration hands on as it is -> its initial value"""
    regions = [op.body] if isinstance(op, c.For) else [op.before, op.body]
    first = len(op.body.args) - len(op.inits)  # a for loop's body takes the index before the carried values
    stays = [all(_hands_on(r, first, i, init) for r in regions) for i, init in enumerate(op.inits)]
    if not any(stays):
        return None
    known = {r.args[first + i]: init for r in regions for i, init in enumerate(op.inits) if stays[i]}
    for region in regions:
        region.replace_uses(known)
        end = region.terminator
        if isinstance(end, c.Yield | c.Condition):
            end.values = _without(end.values, stays)
        region.args = [*region.args[:first], *_without(tuple(region.args[first:]), stays)]
        for index, argument in enumerate(region.args):
            argument.index = index
    inits = _without(op.inits, stays)
    if isinstance(op, c.For):
        made: Op = c.For(op.lower, op.upper, op.step, inits, op.num_stages, op.unroll, op.body)
    else:
        made = c.While(inits, op.before, op.body)
    new.place(made)
    left = iter(made.results)
    return tuple(init if stay else next(left) for init, stay in zip(op.inits, stays, strict=True))


def _hands_on(region: Block, first: int, place: int, init: Value) -> bool:
    """Whether a region of a loop hands on its carried value number ``place`` unchanged, or as the constant it was."""
    end = region.terminator
    if not isinstance(end, c.Yield | c.Condition):
        return False
    value, constant = end.values[place], constant_of(init)
    if value is region.args[first + place] or value is init:
        return True
    # As text: 0.0 is not -0.0, and NaN is NaN.
    return constant is not None and value.type == init.type and repr(constant_of(value)) == repr(constant)


def _without(values: tuple[Value, ...], gone: list[bool]) -> tuple[Value, ...]:
    return tuple(value for value, is_gone in zip(values, gone, strict=True) if not is_gone)


@rule(memory.Load)
def load_mask(op: memory.Load, new: Rewriter) -> Replacement:
    """load(p, mask=true) -> load(p); load(p, mask=false, other=x) -> x"""
    mask = constant_of(op.mask) if op.mask is not None else None
    if mask is None:
        return None
    if not mask:
        return op.other
    return new(memory.Load(op.pointer, None, None, op.cache, op.eviction, op.volatile))


@rule(memory.Store)
def store_mask(op: memory.Store, new: Rewriter) -> Replacement:
    """store(p, x, mask=true) -> store(p, x); store(p, x, mask=false) -> nothing"""
    mask = constant_of(op.mask) if op.mask is not None else None
    if mask is None:
        return None
    if not mask:
        return ()
    store = memory.Store(op.pointer, op.value, None, op.cache, op.eviction)
    new.place(store)
    return ()


@rule(debug.Assume, debug.Assert)
def known_condition(op: debug.Assume | debug.Assert, new: Rewriter) -> Replacement:
    """assert true -> nothing; assume true -> nothing"""
    return () if constant_of(op.condition) == 1 else None
