"""Loops and branches around random operations, and the names that they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import arithmetic, casts, loads, reductions, shapes, stores
from .arithmetic import float_binary, integer_binary, like
from .atomics import atomic, atomic_box, atomic_old
from .bounds import Known, Reject
from .building import Builder
from .kinds import F32, I1, I32, I64, NUMBERS, Array
from .statements import Exit, Operation, State, Variable

Operations = Sequence[Callable[[Builder], object]]

ELEMENTS: Operations = [arithmetic.binary] * 8 + [
    arithmetic.mixed_integers,
    arithmetic.mixed_floats,
    arithmetic.with_number,
    arithmetic.where,
    arithmetic.where,
    arithmetic.called,
    arithmetic.chosen_scalar,
    *[arithmetic.unary] * 3,
    *[casts.convert] * 4,
    casts.bits,
    casts.bits_back,
    *[arithmetic.assembly] * 2,
]
AXES: Operations = [
    *[reductions.reduce] * 4,
    *[reductions.scan] * 2,
    reductions.sort,
    reductions.gather,
    reductions.gather,
    reductions.histogram,
    reductions.beside_its_extremum,
]
MEMORY: Operations = [*[loads.load] * 5, loads.load_gathered, atomic, atomic_old, atomic_box]
#: Of a straight kernel, and of a loop, a branch or a kernel with products.
ALL: Operations = [*MEMORY, *ELEMENTS, *shapes.MOVES, *AXES]
FEW: Operations = [
    *[loads.load] * 4,
    *[arithmetic.binary] * 8,
    *[arithmetic.where] * 2,
    *[arithmetic.unary] * 2,
    *[casts.convert] * 3,
    arithmetic.with_number,
    arithmetic.called,
    shapes.permute,
    shapes.reshape,
    shapes.flip,
    shapes.broadcast,
    shapes.join,
    shapes.split,
    *[reductions.reduce] * 2,
    reductions.scan,
    reductions.gather,
    reductions.beside_its_extremum,
    atomic,
]


def step(b: Builder, operations: Operations = ALL) -> bool:
    """One operation; False if none came of it."""
    return b.attempt(b.rng.choice(operations))


def some_steps(b: Builder, count: int) -> None:
    """Operations of a block, some of them loops and branches."""
    for _ in range(count):
        if b.depth < 3 and b.chance(0.12):
            b.attempt(b.choose(for_loop, branch, branch, while_loop))
        else:
            step(b, FEW)


# Names that change --------------------------------------------------------------------------------------------


def changing(b: Builder, count: int) -> list[Variable]:
    """New names for values of the pool."""
    made = []
    for _ in range(count):
        v = b.pick(lambda v: v.kind in NUMBERS and v.size <= 4096 and v is not b.pid)
        made.append(b.emit(str(v), [v], [(v.shape, v.kind)], lambda x: x, name=b.fresh("c")))
    return made


def new_value(b: Builder, c: Variable, others: Sequence[Variable] = ()) -> Variable:
    """What ``c`` becomes: computed from it, another name's value, or an earlier value."""
    alike = [o for o in others if o is not c and o.shape == c.shape and o.kind is c.kind]
    how = b.choose("compute", "compute", "swap", "turn", "pool")
    if how == "swap" and alike:
        return alike[0]
    if how == "turn" and c.shape:
        axis = b.rng.randrange(len(c.shape))
        text = f"tl.flip({c}, {axis})"
        return b.emit(text, [c], [(c.shape, c.kind)], lambda x: x.moved(lambda d: np.flip(d, axis + 1)))
    o = like(b, c.shape, c.kind)
    if how == "pool":
        return o
    return integer_binary(b, c, o) if c.kind.is_integer else float_binary(b, c, o)


def change(b: Builder, names: Sequence[Variable]) -> None:
    """Assign new values, one after the other or all at once."""
    values = [(c, new_value(b, c, names)) for c in names if b.chance(0.85)]
    if len(values) > 1 and b.chance(0.4):
        made = [(v.shape, v.kind) for _, v in values]
        held = [b.emit(str(v), [v], [m], lambda x: x, pooled=False) for (_, v), m in zip(values, made, strict=True)]
        values = [(c, v) for (c, _), v in zip(values, held, strict=True)]
    for c, v in values:
        b.assign(c, v)


# Conditions ---------------------------------------------------------------------------------------------------


def condition(b: Builder) -> Variable:
    """A scalar that decides, or two."""
    one = _comparison(b)
    if b.chance(0.8):
        return one
    other, made = _comparison(b), [((), I1)]
    if b.chance(0.5):
        both = lambda x, y: Known(x.values & y.values)  # noqa: E731
        return b.emit(f"{one} and {other}", [one, other], made, both, pooled=False)
    either = lambda x, y: Known(x.values | ~y.values)  # noqa: E731
    return b.emit(f"{one} or not {other}", [one, other], made, either, pooled=False)


def _comparison(b: Builder) -> Variable:
    """A scalar that decides: of the program, of an argument, of the turn, or of what was loaded."""
    made = [((), I1)]
    how = b.choose("program", "argument", "scalar", "turn", "tile")
    if how == "turn" and b.loops:
        index, number = b.loops[-1], b.choose(1, 2, 3)
        if number == 2:
            return b.emit(f"{index} % 2 == 0", [index], made, lambda i: Known(i.values % 2 == 0), pooled=False)
        return b.emit(f"{index} >= {number}", [index], made, lambda i: Known(i.values >= number), pooled=False)
    scalars = [v for v in b.pool if not v.shape and v.kind in (I32, I64, F32)]
    if how == "scalar" and scalars:
        one, number = b.rng.choice(scalars), b.choose(0, 3, -2)

        def above(x: Known) -> Known:
            if not x.exact and np.any(np.abs(x.values - number) <= x.slack):
                raise Reject("undecided")
            return Known(x.values > number)

        return b.emit(f"{one} > {number}", [one], made, above, pooled=False)
    if how == "tile":
        a = b.pick(lambda v: bool(v.shape) and v.kind in (I32, I64, F32) and v.size <= 4096)
        axes = tuple(range(1, len(a.shape) + 1))
        return b.emit(f"tl.max({a}) > 5", [a], made, lambda x: Known(x.settled().max(axes) > 5), pooled=False)
    if how == "argument":
        n = b.argument(b.choose(0, 1, 5, 16))
        return b.emit(f"{n} > 1", [n], made, lambda x: Known(x.values > 1), pooled=False)
    every = b.choose(2, 3)
    return b.emit(f"pid % {every} == 0", [b.pid], made, lambda x: Known(x.values % every == 0), pooled=False)


def leave(b: Builder, *words: str) -> None:
    """A way out: ``break``, ``continue`` or ``return``."""
    word = b.choose(*words)
    b.tags.add(word)
    b.append(Exit((condition(b),), (), word))


# Blocks -------------------------------------------------------------------------------------------------------


def _bound(b: Builder, low: int, high: int) -> tuple[str, Variable]:
    """A number of a range's: its text and value, which may differ from program to program."""
    how, number = b.choose("literal", "argument", "argument", "program", "data"), b.rng.randint(low, high)
    scalars = [v for v in b.pool if not v.shape and v.kind is I32 and v is not b.pid]
    if how == "literal":
        return str(number), b.hidden(number)
    if how == "argument" or (how == "data" and not scalars):
        n = b.argument(number)
        return str(n), n
    if how == "program":
        every = b.choose(2, 3, 4)
        meaning = lambda p: Known((p.values % every + low).astype(np.int32))  # noqa: E731
        v = b.emit(f"(pid % {every}) + {low}", [b.pid], [((), I32)], meaning, pooled=False)
        return str(v), v
    one = b.rng.choice(scalars)
    meaning = lambda x: Known((x.values & np.int32(3)) + np.int32(low))  # noqa: E731
    v = b.emit(f"({one} & 3) + {low}", [one], [((), I32)], meaning, pooled=False)
    return str(v), v


def range_of(b: Builder, inner: str) -> str:
    """The text of a range, with options now and then."""
    how = b.choose("range", "range", "stages", "stages", "options")
    if how == "range":
        return f"range({inner})"
    if how == "stages":
        return f"tl.range({inner}" + (")" if b.chance(0.3) else f", num_stages={b.rng.randint(1, 5)})")
    options = {
        "num_stages": b.rng.randint(1, 4),
        "flatten": b.choose(True, False),
        "disallow_acc_multi_buffer": b.choose(True, False),
        "loop_unroll_factor": b.rng.randint(1, 4),
        "disable_licm": True,
    }
    chosen = [f"{name}={value}" for name, value in options.items() if b.chance(0.35)]
    return f"tl.range({', '.join([inner, *chosen])})"


def for_loop(b: Builder) -> None:
    """A loop over a range that goes up or down, or over numbers that are known."""
    names, by = changing(b, b.choose(1, 1, 2, 2, 3)), b.choose(1, 1, 1, 2, 3)
    static = b.chance(0.08)
    if static:
        turns = b.rng.randint(1, 3)
        header, start, count, by = f"tl.static_range({turns})", b.hidden(0), b.hidden(turns), 1
    else:
        low_text, low = _bound(b, 0, 2)
        high_text, high = _bound(b, 0, 7)
        count = _turns(b, low, high, by)
        if b.chance(0.12):
            header, start, by = f"range({high_text}, {low_text}, {-by})", high, -by
        else:
            inner = f"{low_text}, {high_text}" + (f", {by}" if by != 1 else "")
            header, start = range_of(b, high_text if inner == f"0, {high_text}" and b.chance(0.8) else inner), low
    index = Variable(b.fresh("i"), (), I32)

    def make() -> None:
        some_steps(b, b.rng.randint(1, 4))
        if not static and not b.in_branch and b.chance(0.25):
            leave(b, "break", "continue")
            some_steps(b, 1)
        change(b, names)
        if len(b.loops) == 1 and not b.in_branch and b.chance(0.2):
            step(b, [stores.any_store])

    b.loop(f"for {index} in {header}:", start, count, by, index, make)


def _turns(b: Builder, low: Variable, high: Variable, by: int) -> Variable:
    made = Variable(b.fresh("turns"), (), I32)

    def count(first: Known, last: Known) -> Known:
        distance = last.values.astype(np.int64) - first.values
        return Known(np.maximum(0, -(-distance // by)).astype(np.int32))

    b.append(Operation((low, high), (made,), "", count))
    return made


SHRINKING: dict[str, Callable[[Array], Array]] = {
    "// 2": lambda k: k // 2,
    "- 5": lambda k: k - 5,
    ">> 2": lambda k: k >> 2,
}


def while_loop(b: Builder) -> None:
    """A loop that ends when a number has become small."""
    names, scalars = changing(b, b.choose(1, 2)), [v for v in b.pool if not v.shape and v.kind is I32]
    one, more, limit = b.rng.choice(scalars), b.choose(0, 1), b.choose(0, 2)
    meaning = lambda x: Known((x.values & np.int32(31)) + np.int32(more))  # noqa: E731
    k = b.emit(f"({one} & 31) + {more}", [one], [((), I32)], meaning, name=b.fresh("k"))

    def make() -> None:
        some_steps(b, b.rng.randint(1, 3))
        if not b.in_branch and b.chance(0.15):
            leave(b, "break")
        change(b, names)
        text, run = b.rng.choice(list(SHRINKING.items()))
        less = b.emit(f"{k} {text}", [k], [((), I32)], lambda x: Known(run(x.values).astype(np.int32)), pooled=False)
        b.assign(k, less)

    def going(state: State) -> Array:
        return state[k].values > limit

    b.loop_while(f"while {k} > {limit}:", [k], going, make)


def branch(b: Builder) -> None:
    """A branch that changes names, or gives names a value on both sides."""
    decides = condition(b)
    if b.chance(0.35):
        names = changing(b, b.choose(1, 1, 2))

        def changed() -> None:
            some_steps(b, b.rng.randint(0, 2))
            for c in names:
                b.assign(c, new_value(b, c, names))

        b.branch(decides, changed)
        return
    models = [
        b.pick(lambda v: v.kind in NUMBERS and v.size <= 4096 and v is not b.pid) for _ in range(b.choose(1, 1, 2))
    ]
    given = [Variable(b.fresh("r"), model.shape, model.kind) for model in models]

    def side() -> None:
        some_steps(b, b.rng.randint(0, 3))
        for target, model in zip(given, models, strict=True):
            value = new_value(b, model)
            if value.kind is not target.kind:
                raise Reject("another type")
            b.assign(target, value)

    b.branch(decides, side, side)
    b.pool.extend(given)
