"""Alias analysis between threads: whether two may touch the same element, each by an operation of its own.

They do not if the addresses cannot be equal, as far as strides and masks tell (:mod:`...tile.access`), or if equal
addresses belong to elements that one thread holds in both tiles. Elements of one tile are taken to lie apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from math import prod

from ...ir.core import Block, Function, Op, Value
from ...layout.f2 import Echelon
from ...tile.access.equality import Equality, Pairs
from ...tile.access.forms import Form, Forms
from ...tile.access.polynomial import Polynomial, coordinate
from ...tile.axis import analyze
from ...tile.control import For, While
from ...tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ..arrays import Arrays
from .scratch import is_shared_by_threads

#: That concern one array: where more are under way a barrier costs less than to find out that none is needed.
MOST_TOUCHES = 32

Access = Load | Store | AtomicRMW | AtomicCAS


@dataclass(frozen=True)
class Touch:
    """An access that some threads may not have done yet; ``earlier``: the outermost loop around it that went on since
    it was begun, whatever those inside did."""

    op: Access
    earlier: For | While | None = None

    def before(self, loop: For | While, inside: Container[Op]) -> Touch:
        """The same, an iteration of ``loop``, which is around it, later; ``inside``: what else is."""
        return Touch(self.op, loop) if self.earlier is None or self.earlier in inside else self


Touches = dict[Access, frozenset[Touch]]  # by what does it


class Meetings:
    """Answers for the accesses of one function."""

    def __init__(self, function: Function) -> None:
        self.arrays = Arrays(function)
        self._function = function
        self._known: dict[tuple[Access, Touch], bool] = {}
        self._first_warp: dict[Access, bool] = {}

    def among(self, op: Access, touches: Touches, awaited: Touches) -> Iterator[Touch]:
        """Those by which a thread may touch what another one that does ``op`` touches; those of the same warp have done
        what is ``awaited``."""
        others = [touches[other] for other in touches if self._are_near(op, other)]
        others += [awaited[other] for other in awaited if self._are_near(op, other) and not self._in_warp(op, other)]
        near = (touch for touch in chain.from_iterable(others) if self._is_near(op, touch))
        some = list(islice(near, MOST_TOUCHES + 1))
        return chain(some, near) if len(some) > MOST_TOUCHES else (touch for touch in some if self._meet(op, touch))

    def _in_warp(self, op: Access, other: Access) -> bool:
        return self.by_first_warp(op) and self.by_first_warp(other)

    def by_first_warp(self, op: Access) -> bool:
        """Whether the first warp does it all: it alone writes what all warps hold."""
        known = self._first_warp.get(op)
        if known is None:
            known = self._first_warp[op] = self._in_first_warp(op)
        return known

    def _in_first_warp(self, op: Access) -> bool:
        if isinstance(op, Load):
            return self._function.warps == 1
        layout = op.pointer.type.layout
        return layout is None or layout.free_bits("warp") == layout.warps - 1

    def _are_near(self, op: Access, other: Access) -> bool:
        """Whether it matters that one is done before the other, before any address is looked at. Atomics are in order
        among themselves."""
        both_read = isinstance(op, Load) and isinstance(other, Load)
        if both_read or (_is_atomic(op) and _is_atomic(other)):
            return False
        array, another = self.arrays.of(op.pointer), self.arrays.of(other.pointer)
        if array is not another and array is not None and another is not None:
            return False
        return not (_by_first_thread(op) and _by_first_thread(other))

    def _is_near(self, op: Access, touch: Touch) -> bool:
        """Whether it matters for a touch of such a pair. It does not where each thread touches its own elements again,
        in one iteration."""
        return touch.earlier is not None or op.pointer is not touch.op.pointer or not _are_alike(op, touch.op)

    def _meet(self, op: Access, touch: Touch) -> bool:
        known = self._known.get((op, touch))
        if known is None:
            known = self._known[op, touch] = self._may_be_equal(op, touch)
        return known

    # Addresses -----------------------------------------------------------------------------------------------

    @cached_property
    def _forms(self) -> Forms:
        forms = Forms(self._function, analyze(self._function), frozenset())
        _ask(self._function.body, forms)
        return forms

    def _may_be_equal(self, op: Access, touch: Touch) -> bool:
        form, other = self._form(op.pointer), self._form(touch.op.pointer)
        if form is None or other is None or form.base is None or form.base is not other.base:
            return True
        unknowns, earlier = self._forms.unknowns, touch.earlier
        if earlier is not None and unknowns.is_inside(form.base, earlier):
            return True
        # The coordinates of the second tile follow those of the first.
        shape, rank = (*op.pointer.type.shape, *touch.op.pointer.type.shape), op.pointer.type.rank
        names = {coordinate(dim): coordinate(dim + rank) for dim in range(len(shape) - rank)}
        before = unknowns.in_earlier_iterations(other.offset, earlier)
        positive = [unknowns.in_earlier_iterations(p, earlier).renamed(names) for p in self._positive(touch.op)]
        sizes = {coordinate(dim): size for dim, size in enumerate(shape)}
        known = Equality(self._forms.signs, sizes, (*self._positive(op), *positive))
        pairs = known.equal(form.offset - before.renamed(names))
        return pairs is not None and not (_are_alike(op, touch.op) and _is_one_thread(op.pointer, pairs))

    def _form(self, pointer: Value) -> Form | None:
        """What is known of a pointer, whatever the arguments."""
        form = self._forms.of(pointer)
        return None if form is None or form.guards else form

    def _positive(self, op: Access) -> tuple[Polynomial, ...]:
        """What is above zero where ``op`` touches memory."""
        mask = op.mask if not isinstance(op, AtomicCAS) else None
        return () if mask is None else self._forms.implied(mask)


def _ask(block: Block, forms: Forms) -> None:
    """Ask for all forms in program order."""
    for op in block.ops:
        for inner in op.blocks:
            _ask(inner, forms)
        for result in op.results:
            if result.type.is_pointer or result.type.is_integer:
                forms.of(result)


def _is_atomic(op: Access) -> bool:
    return isinstance(op, AtomicRMW | AtomicCAS)


def _are_alike(op: Access, other: Access) -> bool:
    """Whether elements at the same place in both tiles are touched by one thread, the same one."""
    return op.pointer.type == other.pointer.type and _by_one_thread(op) and _by_one_thread(other)


def _by_one_thread(op: Access) -> bool:
    """Whether one thread alone touches each element."""
    return not isinstance(op, Load) or not is_shared_by_threads(op.pointer)


def _by_first_thread(op: Access) -> bool:
    """Whether the first thread does it all."""
    return not isinstance(op, Load) and not op.pointer.type.rank


def _is_one_thread(pointer: Value, pairs: Pairs) -> bool:
    """Whether elements of two tiles, both as ``pointer``, are the same thread's if these coordinates are equal: in the
    others, elements of one thread differ as much as they can."""
    layout, rank = pointer.type.layout, pointer.type.rank
    if layout is None:
        return False
    own = Echelon(layout.flat_register)
    free = [dim for dim in range(rank) if (coordinate(dim), coordinate(dim + rank)) not in pairs]
    steps = ((prod(layout.shape[dim + 1 :]), layout.shape[dim]) for dim in free)
    return all(step << bit in own for step, size in steps for bit in range(size.bit_length() - 1))
