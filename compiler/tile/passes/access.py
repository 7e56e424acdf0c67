"""Pointer arithmetic to boxes of arrays: loads and stores whose addresses are linear in the tile's coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.core import Block, Function, Op, Value
from ...ir.types import I32, I64, Tile
from ...launch_recipe import Guard
from .. import elementwise as e
from ..access.box import Box, Dimension, find_box
from ..access.emit import ScalarCode
from ..access.forms import Forms
from ..axis import analyze
from ..blocks import BlockLoad, BlockStore
from ..memory import Load, Store
from .cse import cse
from .licm import licm


def structure_accesses(
    function: Function,
    wanted: Callable[[Load | Store], bool],
    denied: frozenset[Guard] = frozenset(),
    others: dict[Op, int | float | bool] | None = None,
) -> tuple[Guard, ...]:
    """Rewrite the ``wanted`` accesses that are provably boxes into block_load and block_store, in place.

    Pointer arithmetic that nothing reads any more is left to dce. Returns the promises about arguments that the new
    operations rely on, in the order in which they are needed first; none is in ``denied``. ``others``: for those who
    can pad with any number, the block loads whose masked-off elements are a constant other than zero and NaN, which is
    noted here; without it, such loads stay what they are.
    """
    if not any(isinstance(op, Load | Store) and wanted(op) for op in function.walk()):
        return ()
    rewriter = _Rewriter(Forms(function, analyze(function), denied), wanted, others)
    rewriter.block(function.body)
    if not rewriter.replaced and not rewriter.guards and not rewriter.rewritten:
        return ()
    rewriter.place(function.body)
    function.replace_uses(rewriter.replaced)
    cse(licm(cse(function)))
    return tuple(rewriter.guards)


class _Rewriter:
    def __init__(
        self,
        forms: Forms,
        wanted: Callable[[Load | Store], bool],
        others: dict[Op, int | float | bool] | None,
    ) -> None:
        self.forms = forms
        self.others = others
        self.wanted = wanted
        self.guards: dict[Guard, None] = {}
        self.replaced: dict[Value, Value] = {}
        self.rewritten: dict[Op, list[Op]] = {}

    def block(self, block: Block) -> None:
        """Decide about every access, in program order."""
        for op in block.ops:
            for nested in op.blocks:
                self.block(nested)
            for result in op.results:
                if result.type.is_integer or result.type.is_pointer:
                    self.forms.of(result)
            if isinstance(op, Load | Store) and self.wanted(op):
                self.access(op)

    def access(self, op: Load | Store) -> None:
        padding = _padding(op)
        other = _constant(op) if padding is None and self.others is not None else None
        if other is not None:
            padding = "zero"
        box = find_box(self.forms, op.pointer, op.mask) if padding is not None else None
        if box is None or padding is None:
            return
        checked = any(d.sizes for d in box.dimensions)
        if isinstance(op, Store) and _overlaps(box, op.pointer.type.shape):
            return
        emit = ScalarCode(self.forms.unknowns, op.location)
        base = self._base(box, emit)
        sizes, strides, offsets = (
            tuple(v) for v in zip(*(self._dimension(d, emit) for d in box.dimensions), strict=True)
        )
        marks = tuple(int(bool(d.sizes)) for d in box.dimensions)
        proven = tuple(int(d.proven) for d in box.dimensions)
        made: BlockLoad | BlockStore
        if isinstance(op, Load):
            shape = op.pointer.type.shape
            padded = padding if checked else "zero"
            alignment = self._alignment(op, strides)
            made = BlockLoad(
                base, sizes, strides, offsets, shape, marks, padded, op.cache, op.eviction, alignment, proven
            )
            made.result.name = op.result.name
            if other is not None and self.others is not None:
                self.others[made] = other
            self.replaced[op.result] = made.result
        else:
            made = BlockStore(base, sizes, strides, offsets, op.value, marks, op.cache, op.eviction, proven)
        made.location = op.location
        self.rewritten[op] = [*emit.ops, made]
        self.guards.update(dict.fromkeys(sorted(box.guards, key=str)))

    def _alignment(self, load: Load, strides: tuple[Value, ...]) -> int:
        """What the pointers of a tile tell of the alignment of its rows."""
        rank = load.pointer.type.rank
        for axis, stride in enumerate(strides[len(strides) - rank :]):
            if isinstance(stride.op, e.Constant) and stride.op.value == 1:
                return self.forms.facts[load.pointer].aligned(axis) * load.pointer.type.pointee.bytes
        return 1

    def _base(self, box: Box, emit: ScalarCode) -> Value:
        rest = self.forms.with_indices(box.rest)
        return emit.add(e.AddPtr(box.base, emit.value(rest, I64))) if rest else box.base

    def _dimension(self, dimension: Dimension, emit: ScalarCode) -> tuple[Value, Value, Value]:
        plain = [self.forms.with_indices(p) for p in (dimension.stride, dimension.offset, *dimension.sizes)]
        stride, offset, *sizes = map(emit.value, plain)
        if not sizes:
            return emit.add(e.Constant(0, Tile(I32))), stride, offset
        if len({size.type for size in sizes}) > 1:
            sizes = [emit.value(p, I64) for p in plain[2:]]
        least = sizes[0]
        for size in sizes[1:]:
            least = emit.add(e.Min(least, size))
        return least, stride, offset

    def place(self, block: Block) -> None:
        """Put the new operations where they belong."""
        ops: list[Op] = []
        for op in block.ops:
            for nested in op.blocks:
                self.place(nested)
            ops.extend(self.forms.placed.get(op, ()))
            ops.extend(self.rewritten.get(op, (op,)))
        block.ops = ops


def _padding(op: Load | Store) -> str | None:
    """What masked-off elements of ``op`` are; None if a block cannot do it."""
    if isinstance(op, Store):
        return "zero"
    if op.volatile:
        return None
    if op.other is None:
        return "zero"
    source = op.other.op
    if not isinstance(source, e.Constant) or op.result.type.is_pointer:
        return None
    if op.result.type.is_float and math.isnan(source.value):
        return "nan"
    return "zero" if source.value == 0 and math.copysign(1, source.value) > 0 else None


def _constant(op: Load | Store) -> int | float | bool | None:
    """What masked-off elements are, if that is one number."""
    if isinstance(op, Store) or op.volatile or op.other is None or op.result.type.is_pointer:
        return None
    return op.other.op.value if isinstance(op.other.op, e.Constant) else None


def _overlaps(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether elements of a tile visibly share an address: which one is stored last is the tile's business."""
    inner = box.dimensions[-len(shape) :]
    return any(n > 1 and not d.stride for n, d in zip(shape, inner, strict=True))
