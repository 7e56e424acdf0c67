"""Computing lazy tile values chunk by chunk inside the loops of one consumer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.core import Op, Value
from ...ir.types import Element
from ...llvm.typed import Typed, constant, lane_numbers, overload_name, vector_type
from . import elementwise
from .affine import divisor_of, known_number, structured, vectorized
from .arena import Buffer, Stored
from .chunk import (
    Affine,
    Chunk,
    Coord,
    Coords,
    Uniform,
    Vector,
    llvm_element,
    memory_element,
    row_strides,
    vector_axis,
)
from .loops import Nest
from .lower import CpuLowering
from .rule_sets import views


class Emission:
    """One loop nest of a consumer. ``lanes`` elements are computed at once; 1 means scalars.

    ``saving``: kept values that this nest computes first; each is stored when it is computed. ``assume``: progressions
    that hold only at run time (see :class:`Stored`) may be used, because the caller checked; it also checked that the
    masks ``all_true`` are.
    """

    def __init__(
        self,
        low: CpuLowering,
        lanes: int,
        saving: dict[Value, Stored],
        *,
        assume: bool = False,
        all_true: Collection[Value] = (),
        unroll: bool = True,
    ) -> None:
        self.low = low
        self.e = low.e
        self.lanes = lanes
        self.saving = saving
        self.assume = assume
        self.all_true = all_true
        self.nest = Nest(low.blocks, unroll=unroll)
        self.structures: dict[Value, tuple[int | None, int]] = {}
        self._memo: dict[object, Chunk | Typed] = {}
        self._scopes: list[list[object]] = [[]]

    # Loops -----------------------------------------------------------------------------------------------------

    def open(
        self,
        count: int,
        step: int = 1,
        *,
        start: int = 0,
        stride: int = 0,
        carried: Sequence[Typed] = (),
    ) -> tuple[Coord, list[Typed]]:
        """Begin a loop; see :meth:`Nest.open`."""
        made = self.nest.open(count, step, start, carried, stride)
        self._scopes.append([])
        return made

    def close(self, carried: Sequence[Typed] = ()) -> list[Typed]:
        """End the innermost loop; returns the values of ``carried`` after it. See :meth:`Nest.close`."""
        finals = self.nest.close(carried)
        for key in self._scopes.pop():
            self._memo.pop(key, None)
        return finals

    def finish(self) -> None:
        """Go on behind the loops."""
        self.low.blocks.enter(self.nest.levels[0].current)

    def walk(self, shape: Sequence[int]) -> Coords:
        """Open loops over all chunks of ``shape``."""
        axis = vector_axis(shape)
        coords = []
        for d, n in enumerate(shape):
            if d == axis:
                coords.append(self.open(n // self.lanes, self.lanes, stride=int(self.lanes > 1))[0])
            else:
                coords.append(self.open(n)[0])
        return tuple(coords)

    def shifted(self, x: Coord, y: Coord) -> Coord:
        """The coordinate x + y, computed in the loop where both are known."""
        level = max(x.level, y.level)
        with self.nest.at(level):
            if y.base.name == "0":
                base = x.base
            elif x.base.name == "0":
                base = y.base
            else:
                base = self.e.binary("add nuw nsw", x.base, y.base)
        return Coord(base, x.stride + y.stride, level, min(x.divisor, y.divisor))

    def unwind(self, count: int) -> None:
        """Close ``count`` loops and go on behind them."""
        for _ in range(count):
            self.close()
        self.finish()

    def _remember(self, key: object, level: int, made: Chunk | Typed) -> None:
        # Trivial loops have no level of their own; a scope is closed with the loop that opened it, so an entry is
        # filed under the innermost scope at which its level is still open.
        self._memo[key] = made
        self._scopes[self._scope_of(level)].append(key)

    def _scope_of(self, level: int) -> int:
        scope, seen = 0, 0
        for index, trivial in enumerate(self.nest.trivial, 1):
            if seen == level:
                break
            if not trivial:
                seen += 1
                scope = index
        return scope

    # Values ----------------------------------------------------------------------------------------------------

    def chunk(self, value: Value, coords: Coords) -> Chunk:
        """``value`` at ``coords``."""
        if not value.type.rank:
            return self.low.scalar(value)
        if value in self.all_true:
            return Uniform(Typed("i1", "true"), 0)
        key = (value, coords)
        held = self._memo.get(key)
        if held is not None:
            return held  # type: ignore[return-value]
        stored = self.low.stored.get(value)
        if stored is not None:
            made = self.read(stored, value.type.elem, coords)
        else:
            made = self._compute(value, coords)
            if value in self.saving:
                self._save(value, made, coords)
        self._remember(key, made.level, made)
        return made

    def vector(self, value: Value, coords: Coords) -> Typed:
        """``value`` at ``coords`` as a vector of all lanes."""
        return self.as_vector(self.chunk(value, coords))

    def as_vector(self, chunk: Chunk) -> Typed:
        """A chunk as a vector of all lanes, made once at the chunk's loop level."""
        if isinstance(chunk, Vector):
            return chunk.value
        base = chunk.base if isinstance(chunk, Affine) else chunk.value
        stride = chunk.stride if isinstance(chunk, Affine) else 0
        key = (base, stride)
        held = self._memo.get(key)
        if held is None:
            with self.nest.at(chunk.level):
                held = vectorized(self.e, chunk, self.lanes)
            self._remember(key, chunk.level, held)
        return held  # type: ignore[return-value]

    def apply(self, op: Op, args: list[Chunk]) -> Chunk:
        """One elementwise operation on chunks."""
        level = max((a.level for a in args), default=0)
        rule = elementwise.rules.find(op)
        uniform = [a for a in args if isinstance(a, Uniform)]
        if len(uniform) == len(args):
            with self.nest.at(level):
                made = rule(self.e, op, *(a.value for a in uniform))
            return Uniform(made, level, known_number(op, uniform), divisor_of(op, uniform))
        with self.nest.at(level):
            shaped = structured(self.e, op, args, self.lanes, level)
        if shaped is not None:
            return shaped
        vectors = [self.as_vector(a) for a in args]
        with self.nest.at(level):
            return Vector(rule(self.e, op, *vectors), level)

    def _compute(self, value: Value, coords: Coords) -> Chunk:
        op = value.op
        if op is None:
            raise AssertionError(f"{value!r} is neither stored nor computed")
        view = views.rules.get(type(op))
        if view is not None:
            return view(self, op, value, coords)
        return self.apply(op, [self.chunk(v, coords) for v in op.operands])

    # Scratch memory --------------------------------------------------------------------------------------------

    def address(self, buffer: Buffer, elem: Element, terms: list[tuple[Coord, int]]) -> Typed:
        """Pointer to the element at the sum of coordinate * stride; parts are added in the loop they change in."""
        element = memory_element(elem)
        key: tuple[object, ...] = (id(buffer), element)
        pointer = self._memo.get(key)
        if not isinstance(pointer, Typed):
            with self.nest.at(0):
                pointer = self.e.offset(self.low.scratch, Typed("i64", str(buffer.offset)), "i8")
            self._remember(key, 0, pointer)
        for coord, stride in sorted(terms, key=lambda t: t[0].level):
            if coord.base.name == "0":
                continue
            key = (*key, coord.base.name, stride)
            held = self._memo.get(key)
            if not isinstance(held, Typed):
                with self.nest.at(coord.level):
                    index = coord.base
                    if stride != 1:
                        index = self.e.binary("mul nuw nsw", index, Typed("i32", str(stride)))
                    held = self.e.offset(pointer, index, element)
                self._remember(key, coord.level, held)
            pointer = held
        return pointer

    def read(self, stored: Stored, elem: Element, coords: Coords) -> Chunk:
        """A tile in scratch memory at ``coords``."""
        strides = row_strides(stored.shape)
        return self.read_flat(stored, elem, list(zip(coords, strides, strict=True)))

    def read_flat(self, stored: Stored, elem: Element, terms: list[tuple[Coord, int]]) -> Chunk:
        """A chunk from (coordinate, stride) pairs that add up to a flat index; strides count elements of ``stored``.

        One element if nothing varies along the lanes, a progression if the buffer holds one, a vector load for stride
        1, else a gather.
        """
        level = max((c.level for c, _ in terms), default=0)
        flat = sum(c.stride * s for c, s in terms)
        pointer = self.address(stored.buffer, elem, terms)
        size = elem.bytes
        with self.nest.at(level):
            if self.lanes == 1 or flat == 0:
                return Uniform(self._load(pointer, elem, 0, size), level)
            if self._is_progression(stored, terms):
                first = self._load(pointer, elem, 0, size)
                stride = stored.lane_stride or 0
                return Affine(first, stride, level) if stride else Uniform(first, level)
            if flat == 1:
                return Vector(self._load(pointer, elem, self.lanes, size), level)
            steps = self.e.offset(pointer, lane_numbers(self.lanes, "i64", flat), memory_element(elem))
            return Vector(self.gather(steps, elem, None, None), level)

    def _is_progression(self, stored: Stored, terms: list[tuple[Coord, int]]) -> bool:
        if stored.lane_stride is None or (stored.holds is not None and not self.assume):
            return False
        if len(terms) != len(stored.shape):
            return False
        for d, (coord, _) in enumerate(terms):
            aligned = coord.divisor % self.lanes == 0 and coord.stride == 1
            if (d == stored.axis and not aligned) or (d != stored.axis and coord.stride):
                return False
        return self.lanes <= stored.width

    def _load(self, pointer: Typed, elem: Element, lanes: int, align: int) -> Typed:
        made = self.e.load(vector_type(memory_element(elem), lanes), pointer, align)
        return self.from_memory(made, elem)

    def write(self, buffer: Buffer, value: Value, chunk: Chunk, coords: Coords) -> None:
        """Store a chunk of ``value`` at its place in a row-major buffer."""
        terms = list(zip(coords, row_strides(value.type.shape), strict=True))
        pointer = self.address(buffer, value.type.elem, terms)
        level = max((c.level for c in coords), default=0)
        vector = self.as_vector(chunk)
        with self.nest.at(max(level, chunk.level)):
            self.e.store(self.to_memory(vector, value.type.elem), pointer, value.type.elem.bytes)

    def write_one(self, buffer: Buffer, value: Value, x: Typed, coords: Coords) -> None:
        """Store one element of ``value`` in the innermost open loop."""
        terms = list(zip(coords, row_strides(value.type.shape), strict=True))
        pointer = self.address(buffer, value.type.elem, terms)
        with self.nest.at(self.nest.depth):
            self.e.store(self.to_memory(x, value.type.elem), pointer, value.type.elem.bytes)

    def _save(self, value: Value, chunk: Chunk, coords: Coords) -> None:
        self.write(self.saving[value].buffer, value, chunk, coords)
        stride = (
            chunk.stride if isinstance(chunk, Affine) else 0 if isinstance(chunk, Uniform) and self.lanes > 1 else None
        )
        known, _ = self.structures.get(value, (stride, 0))
        self.structures[value] = (stride if stride == known else None, self.lanes)

    def from_memory(self, x: Typed, elem: Element) -> Typed:
        """Booleans are bytes in memory."""
        if llvm_element(elem) != "i1":
            return x
        return self.e.compare("ne", x, constant(x.type, 0))

    def to_memory(self, x: Typed, elem: Element) -> Typed:
        """Booleans as bytes (0 or 1); anything else as it is."""
        return self.e.cast("zext", x, "i8") if llvm_element(elem) == "i1" else x

    def gather(self, pointers: Typed, elem: Element, mask: Typed | None, other: Typed | None) -> Typed:
        """Lanes from anywhere; masked-off ones are not read and give ``other`` (zero without it)."""
        type = vector_type(memory_element(elem), self.lanes)
        mask = mask or constant(f"<{self.lanes} x i1>", 1)
        other = other or constant(type, 0)
        name = f"llvm.masked.gather.{overload_name(type)}.{overload_name(pointers.type)}"
        operands = [
            (pointers.type, f"align {elem.bytes} {pointers.name}"),
            (mask.type, mask.name),
            (other.type, other.name),
        ]
        made = Typed(type, self.e.function.call(type, name, operands))
        return self.from_memory(made, elem)
