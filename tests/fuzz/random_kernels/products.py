"""Kernels around matrix products: in loops, in loops within loops over tiles, in chains, in branches, and of scaled
operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .atomics import UPDATES, update
from .bounds import Discard, Known, multiplied, result, summed, total_error
from .building import Builder
from .casts import cast
from .control import FEW, step
from .kinds import BF16, E4, E5, EIGHT_BITS, F16, F32, I1, I8, I32, U8, Array, Kind
from .loads import declare_descriptor, new_load
from .matrices import LOADED, Matrix, Shape, dot, filled, transposed, treated
from .places import listed
from .statements import State, Variable, beside
from .stores import any_store, try_store


def operand_kind(b: Builder) -> Kind:
    return b.choose(F16, F16, F16, BF16, BF16, F32, F32, I8, E4, E5)


def product_range(b: Builder, inner: str) -> str:
    """The range of a loop of products, with options now and then."""
    options = [
        (0.4, f"num_stages={b.rng.randint(1, 5)}"),
        (0.1, "flatten=True"),
        (0.15, "warp_specialize=True"),
        (0.15, "disallow_acc_multi_buffer=True"),
        (0.08, f"loop_unroll_factor={b.choose(2, 3)}"),
    ]
    chosen = [text for probability, text in options if b.chance(probability)]
    return f"tl.range({', '.join([inner, *chosen])})" if chosen or b.chance(0.3) else f"range({inner})"


class Gemm:
    """A loop of products for one of ``rows`` by ``columns`` tiles; half of them large and aligned, as compilers like
    it."""

    def __init__(self, b: Builder, rows: int, columns: int, tile: Variable) -> None:
        self.b, self.tile = b, tile
        b.clean = b.chance(0.5)
        kind = operand_kind(b)
        self.kind = kind = F16 if b.clean and kind is F32 else kind
        if b.clean:
            b.options["num_warps"] = b.choose(4, 4, 8, 8, 16)
            b.options.pop("maxnreg", None)
        self._sizes(rows, columns)
        scalar = [((), I32)]
        row = b.emit(f"{tile} // {columns}", [tile], scalar, lambda p: Known(p.values // np.int32(columns)))
        column = b.emit(f"{tile} % {columns}", [tile], scalar, lambda p: Known(p.values % np.int32(columns)))
        self.row = self._times(row, self.bm)
        self.column = self._times(column, self.bn)
        self._operands()
        self._accumulators()

    def _sizes(self, rows: int, columns: int) -> None:
        b = self.b
        large = b.chance(0.8 if b.clean else 0.3)
        bm = b.choose(64, 128, 128, 256) if large else b.choose(16, 32, 64, 64, 128)
        bn = b.choose(64, 128, 256) if large else b.choose(8, 16, 32, 64, 128)
        bk = b.choose(32, 64, 128) if large or self.kind.bits == 8 else b.choose(16, 32, 64)
        while bm * bn > (32768 if large else 16384):
            bm //= 2
        while (bm + bn) * bk > 24576:
            bk //= 2
        turns = b.choose(1, 3, 4, 5, 7, 9) if b.clean else b.choose(0, 1, 2, 3, 4, 5, 7)
        self.bm, self.bn, self.bk = bm, bn, bk
        self.k = max(1, turns * bk - b.choose(0, 0, 1, bk // 2, 8)) if turns else 0
        self.m = max(1, rows * bm - b.choose(0, 0, 1, 8, bm // 2))
        self.n = max(1, columns * bn - b.choose(0, 0, 1, 8))

    def _times(self, v: Variable, factor: int) -> Variable:
        meaning = lambda x: Known(x.values * np.int32(factor))  # noqa: E731
        return self.b.emit(f"{v} * {factor}", [v], [((), I32)], meaning, pooled=False)

    def _operands(self) -> None:
        b, kind = self.b, self.kind
        left, right = b.rng.choice(LOADED[kind]), b.rng.choice(LOADED[kind])
        if b.clean and b.chance(0.8):
            left = right = kind
        style = "small" if kind is I8 else b.choose("tiny", "tiny", "tiny", "small", "real")
        length = max(self.k, 1)
        a = Shape(self.m, length, (self.bm, self.bk), self.row, None, 1)
        c = Shape(length, self.n, (self.bk, self.bn), None, self.column, 0)
        self.operands: list[tuple[Matrix, bool]] = []
        self.two, self.chain = b.chance(0.2), False
        shapes = [(a, left, 0.25), (c, right, 0.3)] + ([(c, right, 0.3)] if self.two else [])
        for shape, loaded, often in shapes:
            turned = b.chance(often)
            self.operands.append((Matrix(b, shape.turned() if turned else shape, loaded, style), turned))
        if not self.two and self.bn <= 128 and kind.bits >= 16 and self.bm * self.bn <= 8192:
            self.chain = b.chance(0.2)

    def _accumulators(self) -> None:
        b, kind = self.b, self.kind
        half = kind is F16 and not self.chain and b.chance(0.12)
        self.sums = I32 if kind is I8 else F16 if half else F32
        if self.chain:
            width = b.choose(16, 32, 64)
            self.weights = new_load(b, (self.bn, width), kind, "tiny", b.choose("pointers", "descriptor", "box"))
            self.accumulators = [filled(b, (self.bm, width), F32)]
        else:
            self.accumulators = [filled(b, (self.bm, self.bn), self.sums) for _ in range(1 + self.two)]
        self.row_sums = filled(b, (self.bm,), F32) if kind is not I8 and b.chance(0.25) else None

    def run(self) -> None:
        """The loop, and what becomes of its results."""
        b, index, length = self.b, Variable(self.b.fresh("k"), (), I32), self.b.argument(self.k)
        self.index, self.by_elements = index, b.chance(0.5)
        if self.by_elements:
            header, by = product_range(b, f"0, {length}, {self.bk}"), self.bk
        else:
            blocks = f"tl.cdiv({length}, {self.bk})"
            header, by = product_range(b, b.choose(blocks, f"0, {blocks}")), 1
        b.loop(f"for {index} in {header}:", b.hidden(0), b.hidden(-(-self.k // self.bk)), by, index, self._body)
        b.pool.extend([self.row_sums] if self.row_sums else [])
        self._finish()

    def _now_and_then(self, often: float, clean: float) -> None:
        if self.b.chance(clean if self.b.clean else often):
            step(self.b, FEW)

    def _body(self) -> None:
        b = self.b
        self._now_and_then(0.15, 0.04)
        place = self.index if self.by_elements else self._times(self.index, self.bk)
        treat, early = not b.clean or b.chance(0.35), b.chance(0.5)
        x, y, *others = (self._operand(matrix, turned, place, treat, early) for matrix, turned in self.operands)
        self._now_and_then(0.12, 0.04)
        if self.chain:
            again = cast(b, treated(b, dot(b, x, y)), self.kind)
            b.assign(self.accumulators[0], dot(b, again, self.weights, self.accumulators[0]))
        else:
            self._add(x, y, others)
        if self.row_sums is not None:
            self._add_rows(x, self.row_sums)
        if self.tile is b.pid and b.chance(0.06):
            step(b, [any_store])
        for matrix, _ in self.operands:
            matrix.advance(self.bk)

    def _operand(self, matrix: Matrix, turned: bool, place: Variable, treat: bool, early: bool) -> Variable:
        """A tile as the product takes it; ``early``: turned as it was loaded, not as it is multiplied."""
        b, v = self.b, matrix.load(place)
        if turned and early:
            v = transposed(b, v)
        v = cast(b, v, self.kind)
        v = treated(b, v) if treat else v
        return transposed(b, v) if turned and not early else v

    def _add(self, x: Variable, y: Variable, others: list[Variable]) -> None:
        b, (first, *more) = self.b, self.accumulators
        to = F16 if self.sums is F16 else None
        if not more and b.chance(0.08):
            every = 2 * self.bk if self.by_elements else 2
            meaning = lambda i: Known(i.values % every == 0)  # noqa: E731
            even = b.emit(f"{self.index} % {every} == 0", [self.index], [((), I1)], meaning, pooled=False)
            b.branch(even, lambda: b.assign(first, dot(b, x, y, first, to)))
            b.tags.add("dot in a branch")
            return
        total = dot(b, x, y, first, to)
        if b.chance(0.08) and self.sums is F32:
            plus = lambda v: result(v.values + 1, v.error, F32)  # noqa: E731
            total = b.emit(f"{total} + 1.0", [total], [(total.shape, F32)], plus)
        b.assign(first, total)
        for accumulator, z in zip(more, others, strict=True):
            b.assign(accumulator, dot(b, x, z, accumulator, to))

    def _add_rows(self, x: Variable, sums: Variable) -> None:
        b, wide = self.b, cast(self.b, x, F32)

        def meaning(old: Known, tile: Known) -> Known:
            added = summed(tile, F32, lambda d: d.sum(2), self.bk)
            return result(old.values + added.values, total_error(old, added), F32)

        text = f"{sums} + tl.sum({wide}, axis=1)"
        b.assign(sums, b.emit(text, [sums, wide], [((self.bm,), F32)], meaning))

    def _finish(self) -> None:
        b, own = self.b, self.tile is self.b.pid
        for accumulator in self.accumulators:
            b.pool.append(accumulator)
            v = after_products(b, accumulator) if accumulator.kind is F32 else accumulator
            if not self.chain and (not own or b.chance(0.5)):
                if not self._try_store(v):
                    raise Discard("not stored")
            elif own:
                try_store(b, v)
            else:
                raise Discard("a chain's place is not known")

    def _try_store(self, v: Variable) -> bool:
        return any(self.b.attempt(lambda b: self._store(v)) for _ in range(4))

    def _store(self, v: Variable) -> None:
        """The tile of a matrix that all programs write."""
        b, (bm, bn), kind = self.b, v.shape, v.kind
        how = b.choose("pointers", "pointers", "descriptor", "box", "atomic")
        if (how == "atomic" and kind not in (F32, I32)) or (
            how == "descriptor" and (bn * kind.bits < 128 or max(v.shape) > 256)
        ):
            how = "pointers"
        unit, by_columns = max(1, 128 // kind.bits), how != "descriptor" and b.chance(0.25)
        if by_columns:
            strides = (1, self.m + b.choose(0, 0, 1, unit))
        else:
            whole = how == "descriptor" or b.chance(0.6)
            strides = ((self.n + unit - 1) // unit * unit if whole else self.n + b.choose(0, 1), 1)
        length = max(strides) * (self.n if by_columns else self.m) + 8
        initial = b.data(kind, length, "tiny") if how == "atomic" else None
        o = b.output(kind, length, initial, aligned=True if how == "descriptor" else None)
        texts = ["1" if s == 1 else str(b.argument(s)) if b.chance(0.6) else str(s) for s in strides]
        bounds = [str(b.argument(size)) for size in (self.m, self.n)]
        b.tags.add(f"product stored: {how}")

        def effect(state: State) -> None:
            row = beside(state.number(self.row), (1, 1)) + np.arange(bm)[:, None]
            column = beside(state.number(self.column), (1, 1)) + np.arange(bn)[None, :]
            inside = (row < self.m) & (column < self.n) & state.lanes(v.shape)
            at = np.where(inside, row * strides[0] + column * strides[1], 0)
            if how == "atomic":
                update(state, o, at, state[v], inside, UPDATES["add"])
            else:
                state.store(o, at, state[v], inside)

        uses = [v, self.row, self.column]
        if how == "descriptor":
            made = declare_descriptor(b, o.name, bounds, texts[:1], v.shape)
            b.effect(f"{made}.store([{self.row}, {self.column}], {v})", [*uses, made], effect)
        elif how == "box":
            places = f"shape={listed(bounds)}, strides={listed(texts)}, offsets=({self.row}, {self.column})"
            order = "(0, 1)" if by_columns else "(1, 0)"
            text = f"tl.make_block_ptr({o.name}, {places}, block_shape={v.shape}, order={order})"
            made = b.declare("box", text, uses[1:])
            b.effect(f"tl.store({made}, {v}, boundary_check=(0, 1))", [*uses, made], effect)
        else:
            rows = b.declare("rows", f"{self.row} + tl.arange(0, {bm})", uses[1:])
            columns = b.declare("cols", f"{self.column} + tl.arange(0, {bn})", uses[1:])
            address = f"{o.name} + {rows}[:, None] * {texts[0]} + {columns}[None, :] * {texts[1]}"
            mask = f"({rows}[:, None] < {bounds[0]}) & ({columns}[None, :] < {bounds[1]})"
            name = "atomic_add" if how == "atomic" else "store"
            b.effect(f"tl.{name}({address}, {v}, mask={mask})", [*uses, rows, columns], effect)


def after_products(b: Builder, v: Variable) -> Variable:
    """What a kernel does with its sums before it stores them."""
    made = [(v.shape, F32)]
    how = b.choose("nothing", "nothing", "cast", "row", "positive", "reduce")
    if how == "cast":
        return cast(b, v, b.choose(F16, BF16))
    if how == "row":
        row = new_load(b, v.shape[-1:], F32, "small", b.choose("pointers", "mask"))
        meaning = lambda x, y: result(x.values + y.values[:, None, :], x.error, F32)  # noqa: E731
        return b.emit(f"{v} + {row}[None, :]", [v, row], made, meaning)
    if how == "positive":
        return b.emit(f"tl.maximum({v}, 0.0)", [v], made, lambda x: Known(np.maximum(x.values, 0), x.error))
    if how == "reduce":
        axis = b.choose(0, 1)
        text, left = f"tl.sum({v}, axis={axis})", [((v.shape[1 - axis],), F32)]
        b.emit(text, [v], left, lambda x: summed(x, F32, lambda d: d.sum(axis + 1), v.shape[axis]))
    return v


def gemm(b: Builder, rows: int, columns: int) -> None:
    """A tile for each program."""
    Gemm(b, rows, columns, b.pid).run()
    b.clean = False
    if b.chance(0.1):
        Gemm(b, rows, columns, b.pid).run()
        b.tags.add("two loops of products")


def persistent(b: Builder) -> None:
    """Tiles in turn: a loop over tiles around one of products."""
    rows, columns = b.choose(1, 2, 3), b.choose(1, 2)
    tiles, programs = rows * columns, b.programs
    counts = np.maximum(0, -(-(tiles - np.arange(programs)) // programs))
    count = b.constant(b.fresh("hidden"), counts)
    options = [(0.35, "flatten=True"), (0.2, "warp_specialize=True"), (0.2, f"num_stages={b.rng.randint(1, 3)}")]
    chosen = [text for probability, text in options if b.chance(probability)]
    by = b.choose(str(programs), "tl.num_programs(0)")
    inner = ", ".join(["pid", b.number(tiles), by, *chosen])
    tile = Variable(b.fresh("tile"), (), I32)
    b.loop(
        f"for {tile} in tl.range({inner}):", b.pid, count, programs, tile, lambda: Gemm(b, rows, columns, tile).run()
    )


def products(b: Builder) -> None:
    """Products without loops, some of batches and some in chains."""
    kind, batch = operand_kind(b), b.choose((), (), (), (2,), (4,))
    m, n = b.choose(16, 32, 64, 128), b.choose(16, 32, 64)
    k = b.choose(32, 64) if kind.bits == 8 else b.choose(16, 32, 64)
    style = "small" if kind is I8 else b.choose("tiny", "tiny", "real", "small")
    left, right = b.rng.choice(LOADED[kind]), b.rng.choice(LOADED[kind])
    if b.chance(0.2):
        x = transposed(b, new_load(b, (*batch, k, m), left, style))
    else:
        x = new_load(b, (*batch, m, k), left, style)
    y = new_load(b, (*batch, k, n), right, style)
    x, y = cast(b, x, kind), cast(b, y, kind)
    if not batch:
        x, y = treated(b, x), treated(b, y)
    start = new_load(b, (*batch, m, n), I32 if kind is I8 else F32, "small") if b.chance(0.4) else None
    if b.chance(0.3):
        step(b, FEW)
    total = dot(b, x, y, start)
    b.tags.add("dot of a batch" if batch else "dot alone")
    if total.kind is F32 and not batch and b.chance(0.5) and n >= (32 if kind.bits == 8 else 16):
        z = new_load(b, (n, b.choose(16, 32, 64)), kind, "tiny")
        again = total if kind in EIGHT_BITS else treated(b, total)
        total = dot(b, cast(b, again, kind), z)
        b.tags.add("dot of a dot")
    try_store(b, total)


FOUR_BITS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FORMATS: dict[str, Kind] = {"e4m3": E4, "e5m2": E5, "bf16": BF16}


def scaled_products(b: Builder) -> None:
    """Products of operands with a scale for every 32 elements."""
    m, n, k = b.choose(32, 64, 128), b.choose(32, 64, 128), b.choose(64, 128)
    formats = [b.choose("e2m1", "e4m3", "e5m2", "bf16") for _ in range(2)]
    if formats == ["bf16", "bf16"]:
        formats[1] = "e4m3"
    x, read_x = _scaled_operand(b, formats[0], (m, k), 1)
    y, read_y = _scaled_operand(b, formats[1], (k, n), 0)
    scales = [
        None if name == "bf16" else _scales(b, (size, k // 32)) for name, size in zip(formats, (m, n), strict=True)
    ]
    start = filled(b, (m, n), F32)
    given = [scale for scale in scales if scale is not None]

    def meaning(p: Known, q: Known, r: Known, *factors: Known) -> Known:
        found = iter(factors)
        left, right = read_x(p.values), read_y(q.values)
        if scales[0] is not None:
            left = left * _factors(next(found))
        if scales[1] is not None:
            right = right * _factors(next(found)).swapaxes(1, 2)
        return multiplied(Known(left), Known(right), r, BF16, F32, None)

    text = f'tl.dot_scaled({x}, {scales[0]}, "{formats[0]}", {y}, {scales[1]}, "{formats[1]}", {start})'
    total = b.emit(text, [x, y, start, *given], [((m, n), F32)], meaning)
    try_store(b, total)


def _factors(scales: Known) -> Array:
    return np.repeat(2.0 ** (scales.values.astype(np.float64) - 127), 32, 2)


def _scales(b: Builder, shape: tuple[int, ...]) -> Variable:
    raw = new_load(b, shape, U8, "small", "pointers")
    near_one = lambda x: Known((x.values & np.uint8(3)) + np.uint8(126))  # noqa: E731
    return b.emit(f"({raw} & 3) + 126", [raw], [(shape, U8)], near_one)


def _scaled_operand(
    b: Builder, name: str, shape: tuple[int, int], along: int
) -> tuple[Variable, Callable[[Array], Array]]:
    """An operand and how its values are read; ``along``: the axis that is multiplied."""
    how = b.choose("pointers", "descriptor", "box")
    if name != "e2m1":
        return new_load(b, shape, FORMATS[name], "tiny", how), lambda values: values
    packed = tuple(size // 2 if axis == along else size for axis, size in enumerate(shape))

    def read(values: Array) -> Array:
        halves = [np.where(code & 8, -1, 1) * FOUR_BITS[code & 7] for code in (values & 15, values >> 4)]
        return np.stack(halves, along + 2).reshape(-1, *shape)

    return new_load(b, packed, U8, "wide", how), read
