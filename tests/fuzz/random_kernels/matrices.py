"""Operands of products: matrices in memory whose tiles a loop reads one after the other, and what tiles become."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arithmetic import function
from .bounds import Known, multiplied, result
from .building import Builder
from .casts import cast
from .kinds import BF16, E4, E5, EIGHT_BITS, F16, F32, F64, I8, I32, I64, OPAQUE, U8, Array, Kind
from .loads import declare_descriptor, new_load
from .places import listed
from .statements import Assignment, Operation, Variable, beside

#: What operands of a type are loaded as, before they are cast.
LOADED: dict[Kind, list[Kind]] = {
    F16: [F16] * 5 + [F32, I8, E5, BF16, U8],
    BF16: [BF16] * 5 + [F32, I8, E4, F16],
    F32: [F32] * 5 + [F16, I32, BF16],
    I8: [I8],
    E4: [E4],
    E5: [E5],
    F64: [F64],
}


@dataclass(frozen=True)
class Shape:
    """A matrix of ``rows`` by ``columns``, read in tiles; ``row`` and ``column``: where a program's tiles begin (None:
    at 0); ``walked``: the dimension along which a loop goes."""

    rows: int
    columns: int
    tile: tuple[int, int]
    row: Variable | None
    column: Variable | None
    walked: int

    def turned(self) -> Shape:
        """The transpose."""
        return Shape(self.columns, self.rows, self.tile[::-1], self.column, self.row, 1 - self.walked)


class Matrix:
    """A matrix in memory, and how its tiles are read: by new pointers, by pointers that a loop moves, by a block
    pointer or by a descriptor."""

    def __init__(self, b: Builder, shape: Shape, kind: Kind, style: str) -> None:
        self.b, self.shape, self.kind = b, shape, kind
        how = b.choose("pointers", "pointers", "moved", "descriptor", "box")
        if how == "descriptor" and (shape.tile[1] * kind.bits < 128 or max(shape.tile) > 256):
            how = "pointers"
        self.how = how
        self.strides, length = self._strides()
        by_pointers = how in ("pointers", "moved")
        self.other = 1 if by_pointers and not b.clean and b.chance(0.12) else 0
        self.input = b.input(kind, length + 8, style, aligned=True if how == "descriptor" or b.clean else None)
        self.stride_texts = [
            "1" if stride == 1 else str(b.argument(stride)) if b.chance(0.6) else str(stride) for stride in self.strides
        ]
        self.bounds = [str(b.argument(size)) for size in (shape.rows, shape.columns)]
        self.starts = [str(start) if start else "0" for start in (shape.row, shape.column)]
        self.begins = [start for start in (shape.row, shape.column) if start]
        self.table: Array | None = None
        self.moving: Variable | None = None
        b.tags.add(f"operand by {how}")
        if how == "descriptor":
            tile = shape.tile
            self.declared = declare_descriptor(b, self.input.name, self.bounds, self.stride_texts[:1], tile)
        elif how == "box":
            self.moving = self._declare_box()
        else:
            self._declare_pointers()

    def _strides(self) -> tuple[tuple[int, int], int]:
        b, rows, columns, unit = self.b, self.shape.rows, self.shape.columns, max(1, 128 // self.kind.bits)
        by_columns = b.chance(0.35) and self.how != "descriptor"
        line = rows if by_columns else columns
        if self.how == "descriptor" or b.clean or (not by_columns and b.chance(0.7)):
            step = (line + unit - 1) // unit * unit
        else:
            step = line + b.choose(0, 0, unit, 1)
        if by_columns:
            return (1, step), step * columns
        if self.how in ("pointers", "moved") and not b.clean and b.chance(0.06):
            return (0, 1), columns
        return (step, 1), step * rows

    def _origin(self, *begins: Known) -> Array:
        """Where each program's tiles begin, as rows and columns."""
        found = iter(begins)
        axes = (self.shape.row, self.shape.column)
        starts = [next(found).values.astype(np.int64) if axis else np.zeros(self.b.programs, np.int64) for axis in axes]
        return np.stack(starts, 1)

    def _declare_box(self) -> Variable:
        b = self.b
        moving = Variable(b.fresh("box"), (2,), OPAQUE)
        order = listed([0, 1] if self.strides[0] == 1 else [1, 0])
        places = f"shape={listed(self.bounds)}, strides={listed(self.stride_texts)}, offsets={listed(self.starts)}"
        text = f"tl.make_block_ptr({self.input.name}, {places}, block_shape={self.shape.tile}, order={order})"
        b.append(Operation(tuple(self.begins), (moving,), text, lambda *begins: Known(self._origin(*begins))))
        return moving

    def _declare_pointers(self) -> None:
        b, names = self.b, []
        for letter, start, size in zip(("rows", "cols"), self.starts, self.shape.tile, strict=True):
            text = f"tl.arange(0, {size})" if start == "0" else f"{start} + tl.arange(0, {size})"
            if letter == "cols" and b.chance(0.08):
                text = f"({text}).to(tl.int64)"
            names.append(b.declare(letter, text, self.begins))
        self.rows, self.columns = names
        self.read_rows = self.rows
        if self.shape.walked == 1 and b.chance(0.08 if b.clean else 0.2):
            self._declare_table()
        if self.how == "moved":
            text = f"{self.input.name} + {self.read_rows}[:, None] * {self.stride_texts[0]}"
            text += f" + {self.columns}[None, :] * {self.stride_texts[1]}"
            self.moving = b.declare("pointers", text, [self.read_rows, self.columns])

    def _declare_table(self) -> None:
        """Which rows are read is in memory."""
        b, rows = self.b, self.shape.rows
        table = b.input(b.choose(I32, I32, I64), rows + 4, "small")
        table.values[:] = b.values.integers(0, rows, rows + 4)
        self.table = table.values.astype(np.int64)
        text = f"tl.load({table.name} + {self.rows}, mask={self.rows} < {self.bounds[0]}, other=0)"
        self.read_rows = b.declare("table", text, [self.rows])
        b.tags.add("operand by a table")

    def _tile(self, origin: Array) -> Known:
        """The tiles that begin at rows and columns."""
        row = beside(origin[:, 0], (1, 1)) + np.arange(self.shape.tile[0])[:, None]
        column = beside(origin[:, 1], (1, 1)) + np.arange(self.shape.tile[1])[None, :]
        inside = (row >= 0) & (row < self.shape.rows) & (column >= 0) & (column < self.shape.columns)
        if self.table is not None:
            row = self.table[np.clip(row, 0, self.shape.rows - 1)]
        at = np.where(inside, row * self.strides[0] + column * self.strides[1], 0)
        return Known(np.where(inside, self.input.values[at], np.full((), self.other, self.input.values.dtype)))

    def load(self, place: Variable) -> Variable:
        """The tile at ``place``, in elements, along the dimension that is walked."""
        b, made = self.b, [(self.shape.tile, self.kind)]

        def here(k: Known, *begins: Known) -> Known:
            origin = self._origin(*begins)
            origin[:, self.shape.walked] += k.values.astype(np.int64)
            return self._tile(origin)

        if self.how == "descriptor":
            starts = [
                f"{start} + {place}" if axis == self.shape.walked else start for axis, start in enumerate(self.starts)
            ]
            return b.emit(
                f"{self.declared}.load([{', '.join(starts)}])", [place, *self.begins, self.declared], made, here
            )
        if self.how == "box":
            assert self.moving is not None
            text = f'tl.load({self.moving}, boundary_check=(0, 1), padding_option="zero")'
            return b.emit(text, [self.moving], made, lambda at: self._tile(at.values))
        places: list[str] = [str(self.rows), str(self.columns)]
        places[self.shape.walked] = f"({places[self.shape.walked]} + {place})"
        mask = f"({places[0]}[:, None] < {self.bounds[0]}) & ({places[1]}[None, :] < {self.bounds[1]})"
        uses = [place, *self.begins, self.rows, self.columns, self.read_rows]
        if self.how == "moved":
            assert self.moving is not None
            address, uses = str(self.moving), [*uses, self.moving]
        else:
            row = places[0] if self.table is None else str(self.read_rows)
            address = f"{self.input.name} + {row}[:, None] * {self.stride_texts[0]}"
            address += f" + {places[1]}[None, :] * {self.stride_texts[1]}"
        other = float(self.other) if self.kind.is_float else self.other
        return b.emit(f"tl.load({address}, mask={mask}, other={other})", uses, made, here)

    def advance(self, by: int) -> None:
        """The next tile along the dimension that is walked."""
        b = self.b
        if self.how == "box":
            assert self.moving is not None
            by_axis = [by if axis == self.shape.walked else 0 for axis in (0, 1)]
            moved = Variable(b.fresh("hidden"), (2,), OPAQUE)
            b.append(Operation((self.moving,), (moved,), "", lambda at: Known(at.values + np.array(by_axis))))
            b.append(
                Assignment((moved,), (self.moving,), f"{self.moving} = tl.advance({self.moving}, {listed(by_axis)})")
            )
        elif self.how == "moved":
            stride = self.stride_texts[self.shape.walked]
            text = b.choose(f"{self.moving} += {by} * {stride}", f"{self.moving} = {self.moving} + {by} * {stride}")
            assert self.moving is not None
            b.effect(text, [self.moving], lambda state: None, bound=True)


def transposed(b: Builder, v: Variable) -> Variable:
    """The last two dimensions change places."""
    text = f"tl.permute({v}, {[*range(len(v.shape) - 2), len(v.shape) - 1, len(v.shape) - 2]})"
    if len(v.shape) == 2:
        text = b.choose(text, f"tl.trans({v})", f"{v}.T")
    shape = (*v.shape[:-2], v.shape[-1], v.shape[-2])
    return b.emit(text, [v], [(shape, v.kind)], lambda x: x.moved(lambda d: d.swapaxes(-1, -2)))


def treated(b: Builder, v: Variable) -> Variable:
    """An operand, computed from what was loaded: of the same shape and type."""
    if v.kind in EIGHT_BITS or b.chance(0.35):
        return v
    kind, made = v.kind, [(v.shape, v.kind)]
    if kind.is_integer:
        small = lambda x: Known((x.values & kind.numpy(3)) - kind.numpy(1))  # noqa: E731
        return b.emit(f"({v} & 3) - 1", [v], made, small) if b.chance(0.5) else v
    how = b.choose("scale", "negative", "positive", "choice", "flip", "function", "row", "sum", "there and back")
    b.tags.add(f"operand: {how}")
    if how == "scale":
        factor = b.choose(0.5, 2.0, 0.25)
        text = f"({v} * {factor}).to({kind.spelled})"
        return b.emit(text, [v], made, lambda x: result(x.values * factor, x.slack * factor, kind))
    if how == "negative":
        return b.emit(f"-{v}", [v], made, lambda x: Known(-x.values, x.error))
    if how == "positive":
        text = f"tl.maximum({v}, 0.0).to({kind.spelled})"
        return b.emit(text, [v], made, lambda x: Known(np.maximum(x.values, 0), x.error))
    if how == "choice":
        every = b.choose(2, 3)
        kept = np.arange(v.shape[-1]) % every == 0
        text = f"tl.where((tl.arange(0, {v.shape[-1]}) % {every} == 0)[None, :], {v}, 0.0).to({kind.spelled})"
        return b.emit(text, [v], made, lambda x: x.moved(lambda d: np.where(kept, d, 0.0)))
    if how == "flip" and v.size <= 4096:
        return b.emit(f"tl.flip({v}, {len(v.shape) - 1})", [v], made, lambda x: x.moved(lambda d: np.flip(d, -1)))
    if how == "function" and kind is not F64:
        return cast(b, function(b, cast(b, v, F32), "exp2"), kind)
    if how == "row":
        row = new_load(b, (v.shape[-1],), kind, "tiny", "pointers")
        index = ", ".join(["None"] * (len(v.shape) - 1) + [":"])

        def scaled(x: Known, y: Known) -> Known:
            factors = y.values.reshape(len(y.values), *[1] * (len(v.shape) - 1), -1)
            return result(x.values * factors, x.slack * np.abs(factors), kind)

        return b.emit(f"{v} * {row}[{index}]", [v, row], made, scaled)
    if how == "sum":
        o = new_load(b, v.shape, kind, "tiny", b.choose("pointers", "mask"))
        return b.emit(f"{v} + {o}", [v, o], made, lambda x, y: result(x.values + y.values, x.error, kind))
    if how == "there and back":
        return cast(b, cast(b, v, F64 if kind is F32 else F32), kind)
    return v


def dot(b: Builder, x: Variable, y: Variable, start: Variable | None = None, to: Kind | None = None) -> Variable:
    """A product, added to ``start``; ``to``: the type of the sums."""
    kind = x.kind
    to = to or (I32 if kind.is_integer else F64 if kind is F64 else F32)
    precision, more = None, ""
    if kind is F32:
        precision = b.choose("ieee", "ieee", "tf32", "tf32x3", None)
        more = f', input_precision="{precision}"' if precision else ""
    if kind in EIGHT_BITS and b.chance(0.2):
        more += f", max_num_imprecise_acc={min(b.choose(0, 32, 64), x.shape[-1])}"
    if to is not F32:
        more += f", out_dtype={to.spelled}"
    b.tags.add(f"dot of {kind.name}")
    made = [((*x.shape[:-1], y.shape[-1]), to)]
    if start is None:
        text = f"tl.dot({x}, {y}{more})"
        return b.emit(text, [x, y], made, lambda p, q: multiplied(p, q, None, kind, to, precision))
    text = b.choose(
        f"tl.dot({x}, {y}, {start}{more})", f"{start} + tl.dot({x}, {y}{more})", f"tl.dot({x}, {y}, acc={start}{more})"
    )
    return b.emit(text, [x, y, start], made, lambda p, q, r: multiplied(p, q, r, kind, to, precision))


def filled(b: Builder, shape: tuple[int, ...], kind: Kind, value: float = 0) -> Variable:
    """A tile of one number, which a loop changes."""
    text = f"tl.full({list(shape)}, {value}, {kind.spelled})" if value else f"tl.zeros({list(shape)}, {kind.spelled})"
    values: Array = np.full((b.programs, *shape), value, kind.numpy)
    return b.emit(text, [], [(shape, kind)], lambda: Known(values), name=b.fresh("acc"), pooled=False)
