"""Identities on control flow and on operations with effects."""

from __future__ import annotations

from .. import control as c
from .. import debug, memory
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
    trips = len(range(lower, upper, step)) if step else 0
    if trips == 0:
        return op.inits
    if trips > 1:
        return None
    return new.inline(op.body, (op.lower, *op.inits))


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
