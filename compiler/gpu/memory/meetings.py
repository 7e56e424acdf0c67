"""Alias analysis between threads: whether two may touch the same element, each by an operation of its own.

They do not if the addresses cannot be equal, as far as strides and masks tell (:mod:`...tile.access`), or if equal
addresses belong to elements that one thread holds in both tiles. Elements of one tile are taken to lie apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ...ir.core import Block, Function, Value
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
    """An access that some threads may not have done yet; ``earlier``: loops that went on since it was begun;
    ``awaited``: those of the same warp have done it."""

    op: Access
    earlier: frozenset[For | While] = frozenset()
    awaited: bool = False

    def before(self, loop: For | While) -> Touch:
        """The same, an iteration later."""
        return Touch(self.op, self.earlier | {loop}, self.awaited)

    def after_warp(self) -> Touch:
        """The same, once the threads of each warp have waited for each other."""
        return Touch(self.op, self.earlier, True)


class Meetings:
    """Answers for the accesses of one function."""

    def __init__(self, function: Function) -> None:
        self.arrays = Arrays(function)
        self._function = function
        self._known: dict[tuple[Access, Touch], bool] = {}

    def among(self, op: Access, touches: Iterable[Touch]) -> list[Touch]:
        """Those of ``touches`` by which a thread may touch what another one that does ``op`` touches."""
        near = [touch for touch in touches if self._is_near(op, touch)]
        return near if len(near) > MOST_TOUCHES else [touch for touch in near if self._meet(op, touch)]

    def by_first_warp(self, op: Access) -> bool:
        """Whether the first warp does it all: it alone writes what all warps hold."""
        if isinstance(op, Load):
            return self._function.warps == 1
        layout = op.pointer.type.layout
        return layout is None or layout.free_bits("warp") == layout.warps - 1

    def _is_near(self, op: Access, touch: Touch) -> bool:
        """What :meth:`among` says before any address is looked at."""
        if touch.awaited and self.by_first_warp(op) and self.by_first_warp(touch.op):
            return False
        array, other = self.arrays.of(op.pointer), self.arrays.of(touch.op.pointer)
        if array is not None and other is not None and array is not other:
            return False
        same = not touch.earlier and op.pointer is touch.op.pointer and _are_alike(op, touch.op)
        return not same and not (_by_first_thread(op) and _by_first_thread(touch.op))

    def _meet(self, op: Access, touch: Touch) -> bool:
        key = (op, Touch(touch.op, touch.earlier))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._may_be_equal(op, touch)
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
        if any(unknowns.is_inside(form.base, loop) for loop in earlier):
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
