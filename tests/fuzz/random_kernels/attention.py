"""Attention: two products a turn, with a softmax between them that is corrected as the loop goes on."""

from __future__ import annotations

import numpy as np

from .bounds import Known, larger_error, product_error, result, summed, total_error
from .building import Builder
from .casts import cast
from .control import FEW, step
from .kinds import BF16, E5, F16, F32, I32, Array, Kind
from .loads import new_load
from .matrices import Matrix, Shape, dot, filled, transposed, treated
from .products import product_range
from .statements import Variable
from .stores import try_store

#: What a score outside the mask is; exp2 of it is 0.
NOTHING = -1000.0
#: The relative error of exp2 of f32.
EXPONENT = 4e-6


class Attention:
    """Queries of one tile over keys and values in memory."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        kind = b.choose(F16, F16, BF16, E5, F32)
        self.bm, self.bn, self.width = (b.choose(16, 32, 64, 128) for _ in range(3))
        if kind is E5:
            self.bn, self.width = max(self.bn, 32), max(self.width, 32)
        turns, b.clean = b.choose(1, 2, 3, 5), b.chance(0.5)
        if b.clean:
            self.bm, self.bn, self.width = (b.choose(64, 128) for _ in range(3))
            kind = F16 if kind is F32 else kind
            b.options["num_warps"] = b.choose(4, 4, 8)
            b.options.pop("maxnreg", None)
        self.kind: Kind = kind
        self.keys = turns * self.bn - b.choose(0, 0, 3, self.bn // 2)
        self.causal, self.turned = b.chance(0.4), b.chance(0.3)
        self.queries = new_load(
            b, (self.bm, self.width), kind, "tiny", b.choose("pointers", "descriptor", "box", "mask")
        )
        if b.chance(0.3):
            self.queries = treated(b, self.queries)
        rows = Shape(self.keys, self.width, (self.bn, self.width), None, None, 0)
        self.key_matrix = Matrix(b, rows.turned() if self.turned else rows, kind, "tiny")
        self.value_matrix = Matrix(b, rows, kind, "tiny")
        self.total = filled(b, (self.bm, self.width), F32)
        self.most = filled(b, (self.bm,), F32, NOTHING)
        self.weight = filled(b, (self.bm,), F32)
        self.length = b.argument(self.keys)
        self.index = Variable(b.fresh("k"), (), I32)

    def run(self) -> None:
        """The loop, and its results."""
        b = self.b
        header = f"for {self.index} in {product_range(b, f'0, {self.length}, {self.bn}')}:"
        b.loop(header, b.hidden(0), b.hidden(-(-self.keys // self.bn)), self.bn, self.index, self._body)
        made = [((self.bm, self.width), F32)]
        text = f"{self.total} / {self.weight}[:, None]"
        out = b.emit(text, [self.total, self.weight], made, _divided)
        if self.kind in (F16, BF16) and b.chance(0.5):
            out = cast(b, out, self.kind)
        b.pool += [self.weight, self.most]
        try_store(b, out)
        try_store(b, b.choose(self.weight, self.most))

    def _body(self) -> None:
        b, vector = self.b, [((self.bm,), F32)]
        scores = self._scores()
        text = f"tl.maximum({self.most}, tl.max({scores}, 1))"
        most = b.emit(text, [self.most, scores], vector, _largest)
        weights = b.emit(f"tl.exp2({scores} - {most}[:, None])", [scores, most], [(scores.shape, F32)], _exponents)
        correction = b.emit(f"tl.exp2({self.most} - {most})", [self.most, most], vector, _exponents)
        text = f"{self.weight} * {correction} + tl.sum({weights}, 1)"
        weight = b.emit(text, [self.weight, correction, weights], vector, self._added)
        text, made = f"{self.total} * {correction}[:, None]", [(self.total.shape, F32)]
        total = b.emit(text, [self.total, correction], made, _corrected)
        values = self.value_matrix.load(self.index)
        narrow = cast(b, weights, self.kind)
        if b.chance(0.1):
            step(b, FEW)
        b.assign(self.total, dot(b, narrow, values, total))
        b.assign(self.most, most)
        b.assign(self.weight, weight)
        self.key_matrix.advance(self.bn)
        self.value_matrix.advance(self.bn)

    def _scores(self) -> Variable:
        """Products of queries and keys, without what lies behind the keys or, in ``causal`` ones, after the query."""
        b, keys = self.b, self.key_matrix.load(self.index)
        raw = dot(b, self.queries, keys if self.turned else transposed(b, keys))
        made = [(raw.shape, F32)]
        scaled = b.emit(f"{raw} * 0.25", [raw], made, lambda x: result(x.values * 0.25, x.slack * 0.25, F32))
        columns = f"({self.index} + tl.arange(0, {self.bn}))[None, :]"
        condition = f"({columns} < {self.length})"
        if self.causal:
            condition += f" & (tl.arange(0, {self.bm})[:, None] * 4 >= {columns})"

        def kept(x: Known, index: Known) -> Known:
            places = index.values.astype(np.int64)[:, None, None] + np.arange(self.bn)
            inside = places < self.keys
            if self.causal:
                inside = inside & (np.arange(self.bm)[:, None] * 4 >= places)
            return Known(np.where(inside, x.values, NOTHING), None if x.exact else np.where(inside, x.slack, 0.0))

        return b.emit(f"tl.where({condition}, {scaled}, {NOTHING})", [scaled, self.index], made, kept)

    def _added(self, old: Known, factor: Known, weights: Known) -> Known:
        more = summed(weights, F32, lambda d: d.sum(2), self.bn)
        product = Known(old.values * factor.values, product_error(old, factor))
        return result(product.values + more.values, total_error(product, more), F32)


def _column(x: Known, like: Array) -> Known:
    """A vector as a column beside tiles, where it has to be one."""
    return x.moved(lambda d: d[:, :, None]) if like.ndim > x.values.ndim else x


def _largest(old: Known, scores: Known) -> Known:
    most = Known(scores.values.max(2), None if scores.exact else scores.slack.max(2))
    return Known(np.maximum(old.values, most.values), larger_error(old, most))


def _exponents(x: Known, most: Known) -> Known:
    column = _column(most, x.values)
    values = np.exp2(x.values - column.values)
    return result(values, values * (EXPONENT + x.slack + column.slack) + 1e-37, F32)


def _corrected(total: Known, factor: Known) -> Known:
    column = _column(factor, total.values)
    return result(total.values * column.values, product_error(total, Known(column.values, column.slack)), F32)


def _divided(total: Known, weight: Known) -> Known:
    column = _column(weight, total.values)
    exact = total.values / column.values
    error = (total.slack + np.abs(exact) * column.slack) / np.maximum(column.values * 0.9, 1e-6)
    return result(exact, error + 3e-7, F32)


def attention(b: Builder) -> None:
    """One tile of queries for each program."""
    Attention(b).run()
