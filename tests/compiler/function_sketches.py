"""Random functions of tile IR, made up by hypothesis operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from whole_tiles import Array, pointers

from deuteron.compiler.ir import Block, Builder, Function, Pointer, Tile, Value, verify
from deuteron.compiler.ir import types as t
from deuteron.compiler.targets.interpreter.numbers import dtype_of
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import movement as v
from deuteron.compiler.tile import program as p
from deuteron.compiler.tile import reduction as r
from deuteron.compiler.tile import shape as s
from deuteron.compiler.tile.blocks import BlockLoad

SHAPES = [(), (4,), (8,), (2, 4), (4, 1), (1, 4)]
TABLE = 64  # elements of the arrays that random functions load from and store to


@dataclass
class Sketch:
    """A function that grows operation by operation, by the choices of ``draw``."""

    draw: Callable[..., object]
    floats: bool = True
    effects: bool = True
    defined: bool = False  # only what every target must compute alike, bit for bit
    blocks: bool = False  # loads of boxes of arrays, too, which back ends do not take
    promises: bool = True
    function: Function = field(default_factory=lambda: Function("random"))
    arguments: list[Array | int] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)
    loops: int = 0

    def __post_init__(self) -> None:
        self.build = Builder(self.function.body)
        self.table = self.parameter("table", Tile(Pointer(t.I32)), np.arange(TABLE, dtype=np.int32) * 3)
        self.scratch = self.parameter("scratch", Tile(Pointer(t.I32)), np.zeros(TABLE, np.int32))
        for name in ("n", "k"):
            number = self.choose(range(1, 40))
            self.pool.append(self.parameter(name, Tile(t.I32), number, number & -number))

    def parameter(self, name: str, type: Tile, argument: Array | int, divisibility: int = 1) -> Value:
        self.arguments.append(argument)
        return self.function.add_parameter(name, type, divisibility)

    def choose(self, options: Sequence[object]) -> object:
        return self.draw(st.sampled_from(list(options)))

    def add(self, op: object) -> Value:
        value = self.build.emit(op).results[0]
        self.pool.extend(op.results)
        return value

    def constant(self, type: Tile) -> Value:
        if type.is_float:
            number = self.choose([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.25, float("inf"), float("nan")])
        elif type.elem == t.I1:
            number = self.choose([False, True])
        else:
            low = 0 if type.scalar.kind == "uint" else -8
            number = self.choose([*range(low, 9), 16, 32, 63])
        return self.add(e.Constant(number, type))

    def some(self, wanted: Callable[[Tile], bool], fallback: Tile) -> Value:
        fitting = [v for v in self.pool if wanted(v.type)]
        if fitting and self.draw(st.integers(0, 4)):
            return self.choose(fitting[-12:])
        return self.constant(fallback)

    def like(self, type: Tile) -> Value:
        return self.some(lambda other: other == type, type)

    def number(self) -> Value:
        shape = self.choose(SHAPES)
        elements = [
            t.I32,
            t.I32,
            t.I64,
            t.U8,
            t.U32,
            *([t.F32, t.F64, t.F16, t.BF16] if self.floats else []),
        ]
        return self.some(lambda type: type.elem != t.I1, Tile(self.choose(elements), shape))

    def integer(self) -> Value:
        return self.some(lambda type: type.is_integer and type.elem != t.I1, Tile(t.I32, self.choose(SHAPES)))

    def boolean(self, shape: tuple[int, ...]) -> Value:
        return self.like(Tile(t.I1, shape))

    # One step each -------------------------------------------------------------------------------------------

    def leaf(self) -> None:
        kind = self.choose(["arange", "pid", "constant", "splat"])
        if kind == "arange":
            start = self.choose([0, 0, 8, 3])
            self.add(s.Arange(start, start + self.choose([4, 8])))
        elif kind == "pid":
            self.add(self.choose([p.ProgramId, p.NumPrograms])(self.choose([0, 1])))
        elif kind == "splat":
            self.add(s.Splat(self.some(lambda type: not type.rank, Tile(t.I32)), self.choose(SHAPES[1:])))
        else:
            self.constant(Tile(t.I32, self.choose(SHAPES)))

    def arithmetic(self) -> None:
        x = self.number()
        kinds = [e.Add, e.Add, e.Sub, e.Mul, e.Min, e.Max]
        kinds += [e.Div] if x.type.is_float else [e.IntDiv, e.Rem, e.And, e.Or, e.Xor]
        pair = [x, self.like(x.type)]
        if self.choose([True, False, False]):
            pair.reverse()
        kind = self.choose(kinds)
        if kind in (e.IntDiv, e.Rem) and self.defined:
            seven, one = (self.build.emit(e.Constant(n, x.type)).result for n in (6, 1))
            pair[1] = self.build.emit(e.And(pair[1], seven)).result
            pair[1] = self.build.emit(e.Or(pair[1], one)).result
        self.add(kind(*pair, precise=True) if kind is e.Div else kind(*pair))

    def unary(self) -> None:
        x = self.number()
        self.add(self.choose([e.Neg, e.Abs] if x.type.is_float else [e.Neg, e.Not, e.Abs])(x))

    def logic(self) -> None:
        x = self.boolean(self.choose(SHAPES))
        if self.choose([True, False]):
            self.add(e.Not(x))
        else:
            self.add(self.choose([e.And, e.Or, e.Xor])(x, self.like(x.type)))

    def shift(self) -> None:
        x = self.integer()
        amount = self.build.emit(e.Constant(self.choose(range(6)), x.type)).result
        self.add(self.choose([e.Shl, e.Shr])(x, amount))

    def compare(self) -> None:
        x = self.number()
        self.add(e.Compare(x, self.like(x.type), self.choose(["eq", "ne", "lt", "le", "gt", "ge"])))

    def select(self) -> None:
        x = self.number()
        self.add(e.Select(self.boolean(x.type.shape), x, self.like(x.type)))

    def cast(self) -> None:
        x = self.integer()
        targets = [t.I1, t.I8, t.I32, t.I64, t.U8, t.U32, *([t.F32, t.BF16] if self.floats else [])]
        self.add(e.Cast(x, self.choose(targets)))

    def widen(self) -> None:
        x = self.some(lambda type: type.is_float, Tile(t.F16, self.choose(SHAPES)))
        if self.floats:
            self.add(e.Cast(x, self.choose([t.F16, t.BF16, t.F32, t.F64])))

    def reshape(self) -> None:
        x = self.number()
        shape = x.type.shape
        kind = self.choose(["expand", "broadcast", "permute", "reshape", "join", "split", "butterfly", "gather"])
        if kind == "expand" and len(shape) < 3:
            self.add(s.ExpandDims(x, self.choose(range(len(shape) + 1))))
        elif kind == "broadcast" and shape:
            self.add(s.Broadcast(x, tuple(n if n > 1 else self.choose([1, 4]) for n in shape)))
        elif kind == "permute":
            self.add(s.Permute(x, tuple(self.draw(st.permutations(range(len(shape)))))))
        elif kind == "reshape":
            size = int(np.prod(shape))
            shapes = [(size,), (1, size), (size, 1), shape]
            shapes += [(2, size // 2), (size // 2, 2)] if size > 1 else []
            self.add(s.Reshape(x, self.choose(shapes)))
        elif kind == "join" and len(shape) < 3:
            self.add(s.Join(x, self.like(x.type)))
        elif kind == "butterfly":
            if axes := [d for d, n in enumerate(shape) if n > 1]:
                axis = self.choose(axes)
                self.add(v.Butterfly(x, axis, self.choose(range(1, shape[axis]))))
        elif kind == "gather":
            if shape:
                self.add(v.Gather(x, self.like(Tile(t.I32, shape)), self.choose(range(len(shape)))))
        elif shape and shape[-1] == 2:
            self.add(s.Split(x))

    def combine(self) -> None:
        x = self.some(lambda type: type.rank > 0 and type.is_integer, Tile(t.I32, (4,)))
        block = Block()
        a, b = (block.add_argument(Tile(x.type.elem)) for _ in range(2))
        with self.build.into(block):
            made = self.build.emit(self.choose([e.Add, e.Max, e.Xor])(a, b)).result
            self.build.emit(c.Yield((made,)))
        axis = self.choose(range(x.type.rank))
        if x.type.scalar.bits >= 32 and not self.draw(st.integers(0, 5)):
            self.add(r.Histogram(x, self.choose([1, 4, 8]), self.boolean(x.type.shape)))
        elif self.choose([True, False]):
            self.add(r.Reduce((x,), axis, block))
        else:
            self.add(r.Scan((x,), axis, self.choose([True, False]), block))

    def place(self, base: Value) -> Value:
        index = self.some(lambda type: type.elem == t.I32, Tile(t.I32, self.choose(SHAPES)))
        last = self.build.emit(e.Constant(TABLE - 1, index.type)).result
        index = self.add(e.And(index, last))
        shape = index.type.shape
        return self.build.emit(e.AddPtr(self.build.emit(s.Splat(base, shape)).result if shape else base, index)).result

    def load(self) -> None:
        pointer = self.place(self.choose([self.table, self.scratch]))
        shape = pointer.type.shape
        mask = self.boolean(shape) if self.choose([True, False]) else None
        wanted = mask is not None and (self.defined or self.choose([True, False]))
        other = self.like(Tile(t.I32, shape)) if wanted else None
        self.add(m.Load(pointer, mask, other))

    def block(self) -> None:
        """Some of the table or, behind its end, zeros; only a load where there are no blocks."""
        if not self.blocks:
            self.load()
        elif self.choose([True, False]):
            self.add(self.box(self.like(Tile(t.I32)), self.choose([4, 8])))
        else:
            self.walk_over_boxes()

    def box(self, place: Value, size: int) -> BlockLoad:
        last, all, one = (self.build.emit(e.Constant(n, Tile(t.I32))).result for n in (TABLE - 1, TABLE, 1))
        offset = self.build.emit(e.And(place, last)).result
        return BlockLoad(self.choose([self.table, self.scratch]), (all,), (one,), (offset,), (size,), (1,))

    def walk_over_boxes(self) -> None:
        """A sum over boxes whose place moves by the same amount in each iteration."""
        numbers = self.choose([0, 1, -3]), self.choose(range(6)), self.choose([1, 2, 4]), self.choose(range(-5, 6))
        lower, upper, step, amount = (self.build.emit(e.Constant(n, Tile(t.I32))).result for n in numbers)
        amount = self.choose([amount, self.function.body.args[2]])
        inits = self.like(lower.type), self.like(Tile(t.I32, (4,)))
        body = Block()
        place, total = [body.add_argument(type) for type in (lower.type, *(v.type for v in inits))][1:]
        with self.build.into(body):
            summed = self.build.emit(e.Add(total, self.build.emit(self.box(place, 4)).result)).result
            moved = self.choose([e.Add(place, amount), e.Add(amount, place), e.Sub(place, amount)])
            self.build.emit(c.Yield((self.build.emit(moved).result, summed)))
        self.build.emit(op := c.For(lower, upper, step, inits, 0, 1, body))
        self.pool += op.results

    def promise(self) -> None:
        x = self.integer()
        if self.promises:
            self.add(e.Hint(x, (1,) * max(1, x.type.rank)))

    def store(self) -> None:
        if self.effects:
            pointer = self.place(self.scratch)
            value = self.like(Tile(t.I32, pointer.type.shape))
            mask = self.boolean(pointer.type.shape) if self.choose([True, False]) else None
            self.build.emit(m.Store(pointer, value, mask))

    # Control flow --------------------------------------------------------------------------------------------

    def region(self, block: Block, types: list[Tile]) -> None:
        """Fill ``block`` and yield values of ``types``."""
        outer = list(self.pool)
        self.pool += block.args
        with self.build.into(block):
            self.steps(self.choose(range(1, 5)))
            self.build.emit(c.Yield(tuple(self.like(type) for type in types)))
        self.pool = outer

    def control(self) -> None:
        if self.loops >= 3:
            return
        self.loops += 1
        inits = tuple(self.number() for _ in range(self.choose(range(3))))
        types = [v.type for v in inits]
        kind = self.choose(["for", "for", "if", "while"])
        if kind == "for":
            self.for_loop(inits, types)
        elif kind == "if":
            then, otherwise = Block(), Block()
            condition = self.boolean(())
            self.region(then, types)
            self.region(otherwise, types)
            self.build.emit(op := c.If(condition, then, otherwise))
            self.pool += op.results
        else:
            self.while_loop(inits, types)

    def for_loop(self, inits: tuple[Value, ...], types: list[Tile]) -> None:
        body = Block()
        body.add_argument(Tile(t.I32), "i")
        for type in types:
            body.add_argument(type)
        self.region(body, types)
        numbers = [
            self.choose([0, 1, 2, -3]),
            self.choose([0, 1, 2, 5, 9]),
            self.choose([1, 1, 2, 4]),
        ]
        lower, upper, step = (self.build.emit(e.Constant(n, Tile(t.I32))).result for n in numbers)
        if self.choose([True, False]):
            # A bound that only the run knows: at most 3 more than the constant.
            three = self.build.emit(e.Constant(3, Tile(t.I32))).result
            extra = self.build.emit(e.And(self.function.body.args[2], three)).result
            upper = self.build.emit(e.Add(upper, extra)).result
        unroll = self.choose([1, 1, 2, 4])
        self.build.emit(op := c.For(lower, upper, step, inits, 0, unroll, body))
        self.pool += op.results

    def while_loop(self, inits: tuple[Value, ...], types: list[Tile]) -> None:
        counter = Tile(t.I32)
        before, body = Block(), Block()
        for block in (before, body):
            for type in (counter, *types):
                block.add_argument(type)
        with self.build.into(before):
            limit = self.build.emit(e.Constant(self.choose([0, 1, 3]), counter)).result
            less = self.build.emit(e.Compare(before.args[0], limit, "lt")).result
            self.build.emit(c.Condition(less, tuple(before.args)))
        self.region(body, types)
        end = body.ops.pop()
        with self.build.into(body):
            one = self.build.emit(e.Constant(1, counter)).result
            following = self.build.emit(e.Add(body.args[0], one)).result
            self.build.emit(c.Yield((following, *end.values)))
        zero = self.build.emit(e.Constant(0, counter)).result
        self.build.emit(op := c.While((zero, *inits), before, body))
        self.pool += op.results

    def steps(self, count: int) -> None:
        kinds = [
            self.leaf, self.leaf, self.arithmetic, self.arithmetic, self.arithmetic, self.unary, self.logic,
            self.shift, self.compare, self.select, self.cast, self.widen, self.reshape, self.reshape,
            self.combine, self.load, self.block, self.store, self.control, self.promise,
        ]  # fmt: skip
        for _ in range(count):
            self.choose(kinds)()

    def finish(self) -> tuple[Function, list[Array | int]]:
        """Store a sample of what was computed, so that it is not dead."""
        for i, value in enumerate(self.pool[-10:]):
            type = value.type
            if type.elem == t.I1:
                value = self.build.emit(e.Cast(value, t.I8)).result
            out = self.parameter(f"out{i}", Tile(Pointer(value.type.elem)),
                                 np.zeros(type.shape, dtype_of(value.type.elem)))  # fmt: skip
            self.build.emit(m.Store(pointers(self.build, out, type.shape), value))
        return verify(self.function), self.arguments


@st.composite
def sketched_functions(
    draw: Callable[..., object],
    floats: bool = True,
    effects: bool = True,
    defined: bool = False,
    blocks: bool = False,
    promises: bool = True,
    steps: int = 12,
) -> tuple[Function, list[Array | int]]:
    sketch = Sketch(draw, floats, effects, defined, blocks, promises)
    sketch.steps(draw(st.integers(1, steps)))
    return sketch.finish()
