"""Operations that extend a random tile program, each with its meaning in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tile_programs import (
    DTYPES,
    LARGEST,
    LENGTH,
    Array,
    Place,
    Program,
    Value,
    is_float,
    offsets,
    offsets_of,
    packed,
    permutation,
    pick,
    random_shape,
)


def load(p: Program) -> None:
    dtype = p.rng.choice(list(DTYPES))
    shape = random_shape(p, 2 ** p.rng.randint(2, 9))
    strides = list(packed(shape, permutation(p, len(shape))))
    if p.rng.random() < 0.2:
        strides[p.rng.randrange(len(strides))] = p.rng.choice([0, 1, 3])
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if reach + 600 >= LENGTH:
        return
    start = p.rng.choice([0, 0, 16, 5])
    where, index = offsets(shape, strides), offsets_of(shape, strides)
    at = f"{dtype}_ptr + {start} + pid * 512 + {where}"
    if p.rng.random() < 0.5:
        meaning = lambda v, place: place.inputs[dtype][start + place.program * 512 + index]  # noqa: E731
        p.add(f"tl.load({at})", (shape, dtype), meaning=meaning)
        return
    bound, period = (max(1, reach * p.rng.randint(1, 4) // 3), 10**6) if p.rng.random() < 0.5 else (3, 7)
    text = f"tl.load({at}, mask={where} % {period} < {bound}, other=5)"

    def masked(values: list[Array], place: Place) -> Array:
        read = place.inputs[dtype][start + place.program * 512 + index]
        return np.where(index % period < bound, read, 5).astype(read.dtype)

    p.add(text, (shape, dtype), meaning=masked)


def bounded(p: Program, value: Value) -> Value:
    """The same with values below 32, so that sums and products stay exact."""
    i = value.index
    if is_float(value.dtype):
        text = f"tl.maximum(tl.minimum({value.name}, 31.0), -31.0).to(tl.{value.dtype})"
        return p.add(text, (value.shape, value.dtype), meaning=lambda v, _: np.clip(v[i], -31, 31))
    return p.add(f"{value.name} & 31", (value.shape, value.dtype), meaning=lambda v, _: v[i] & v[i].dtype.type(31))


def elementwise(p: Program) -> None:
    a = pick(p)
    b = a and pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return
    a, b = bounded(p, a), bounded(p, b)
    i, j = a.index, b.index
    kind = p.rng.choice(["+", "-", "*", "max", "where", "compare"])
    made = (a.shape, a.dtype)
    if kind == "max":
        p.add(f"tl.maximum({a.name}, {b.name})", made, meaning=lambda v, _: np.maximum(v[i], v[j]))
    elif kind == "where":
        text = f"tl.where({a.name} > {b.name}, {a.name}, {b.name} + 1)"
        p.add(text, made, meaning=lambda v, _: np.where(v[i] > v[j], v[i], v[j] + v[j].dtype.type(1)))
    elif kind == "compare":
        p.add(f"({a.name} <= {b.name}).to(tl.{a.dtype})", made, meaning=lambda v, _: (v[i] <= v[j]).astype(v[i].dtype))
    else:
        run = {"+": np.add, "-": np.subtract, "*": np.multiply}[kind]
        p.add(f"{a.name} {kind} {b.name}", made, meaning=lambda v, _: run(v[i], v[j]))


def convert(p: Program) -> None:
    a = pick(p)
    if a is None:
        return
    a = bounded(p, a)
    to, i = p.rng.choice(list(DTYPES)), a.index
    if is_float(a.dtype) and to.startswith("u"):
        return  # of negative numbers undefined
    p.add(f"{a.name}.to(tl.{to})", (a.shape, to), meaning=lambda v, _: v[i].astype(DTYPES[to]))


def count(p: Program) -> None:
    """Consecutive numbers, of which some wrap around in a narrow type before they are widened."""
    size, factor = 2 ** p.rng.randint(2, 9), p.rng.choice([1, 1, 3, 127])
    start = p.rng.choice([0, 3, 125, 250, 32760])
    narrow, wide = (p.rng.choice([name for name in DTYPES if not is_float(name)]) for _ in range(2))
    numbers = (np.arange(size) * factor + start).astype(DTYPES[narrow]).astype(DTYPES[wide])
    text = f"(tl.arange(0, {size}) * {factor} + {start}).to(tl.{narrow}).to(tl.{wide})"
    p.add(text, ((size,), wide), meaning=lambda v, _: numbers)


def reshape(p: Program) -> None:
    a = pick(p)
    if a is None or not a.shape:
        return
    shape, i = random_shape(p, prod(a.shape)), a.index
    text = p.rng.choice(["tl.reshape({}, {})", "{}.reshape({})", "tl.view({}, {})"]).format(a.name, shape)
    p.add(text, (shape, a.dtype), meaning=lambda v, _: v[i].reshape(shape))


def permute(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) > 1)
    if a is None:
        return
    order, i = permutation(p, len(a.shape)), a.index
    text = p.rng.choice(["tl.permute({}, {})", "tl.trans({}, {})"]).format(a.name, order)
    p.add(text, (tuple(a.shape[o] for o in order), a.dtype), meaning=lambda v, _: v[i].transpose(order))


def expand(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) < 4 and prod(v.shape) <= LARGEST // 4)
    if a is None:
        return
    axis, times, i = p.rng.randint(0, len(a.shape)), p.rng.choice([1, 2, 4]), a.index
    shape = (*a.shape[:axis], times, *a.shape[axis:])
    text = f"tl.broadcast_to(tl.expand_dims({a.name}, {axis}), {shape})"
    if not a.shape:
        text = f"tl.full({shape}, {a.name}, tl.{a.dtype})"
    meaning = lambda v, _: np.broadcast_to(np.expand_dims(v[i], axis), shape)  # noqa: E731
    p.add(text, (shape, a.dtype), meaning=meaning)


def join(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and prod(v.shape) <= LARGEST // 2)
    b = a and pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return
    i, j = a.index, b.index
    kind = p.rng.choice(["join", "interleave", "cat"])
    if kind == "join":
        p.add(f"tl.join({a.name}, {b.name})", ((*a.shape, 2), a.dtype), meaning=lambda v, _: np.stack([v[i], v[j]], -1))
    elif kind == "interleave":
        shape = (*a.shape[:-1], 2 * a.shape[-1])
        meaning = lambda v, _: np.stack([v[i], v[j]], -1).reshape(shape)  # noqa: E731
        p.add(f"tl.interleave({a.name}, {b.name})", (shape, a.dtype), meaning=meaning)
    else:
        axis = p.rng.randrange(len(a.shape))
        shape = tuple(2 * size if n == axis else size for n, size in enumerate(a.shape))
        text = f"tl.cat({a.name}, {b.name}, dim={axis})"
        p.add(text, (shape, a.dtype), meaning=lambda v, _: np.concatenate([v[i], v[j]], axis))


def split(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) > 1 and v.shape[-1] == 2)
    if a is None:
        return
    i, half = a.index, (a.shape[:-1], a.dtype)
    p.add(f"tl.split({a.name})", half, half, meaning=[lambda v, _: v[i][..., 0], lambda v, _: v[i][..., 1]])


def order(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and prod(v.shape) <= 512)
    if a is None:
        return
    i, axis = a.index, p.rng.randrange(len(a.shape))
    kind = p.rng.choice(["flip", "sort", "topk"])
    if kind == "flip":
        p.add(f"tl.flip({a.name}, {axis})", (a.shape, a.dtype), meaning=lambda v, _: np.flip(v[i], axis))
        return
    falling = p.rng.random() < 0.5
    if kind == "sort":

        def in_order(v: list[Array], _: Place) -> Array:
            rising = np.sort(v[i], -1)
            return rising[..., ::-1] if falling else rising

        p.add(f"tl.sort({a.name}, descending={falling})", (a.shape, a.dtype), meaning=in_order)
        return
    k = 2 ** p.rng.randint(0, a.shape[-1].bit_length() - 1)
    made = ((*a.shape[:-1], k), a.dtype)
    p.add(f"tl.topk({a.name}, {k}).to(tl.{a.dtype})", made, meaning=lambda v, _: np.sort(v[i], -1)[..., ::-1][..., :k])


def gather(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    if a is None:
        return
    axis, i = p.rng.randrange(len(a.shape)), a.index
    side = a.shape[axis]
    shape = tuple(2 ** p.rng.randint(0, 4) if n == axis else size for n, size in enumerate(a.shape))
    if prod(shape) > LARGEST:
        return
    step = p.rng.choice([1, 3, 5])
    strides = packed(shape, range(len(shape)))
    index = offsets_of(shape, strides) * step % side
    at = f"{offsets(shape, strides)} * {step} % {side}"
    meaning = lambda v, _: np.take_along_axis(v[i], index, axis)  # noqa: E731
    p.add(f"tl.gather({a.name}, {at}, {axis})", (shape, a.dtype), meaning=meaning)


#: How Triton widens small integers before it adds them.
SUMS = {"int16": "int32", "int8": "int32", "uint8": "uint32"}
#: Of 16-bit floats so many may be added that the sum is exact.
FEW = 64


def reduction(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    if a is None:
        return
    a = bounded(p, a)
    i, axis, kept = a.index, p.rng.choice([*range(len(a.shape)), None]), p.rng.random() < 0.4
    over = axis if axis is not None else tuple(range(len(a.shape)))
    gone = {over} if axis is not None else set(over)
    shape = tuple(1 if n in gone else s for n, s in enumerate(a.shape) if kept or n not in gone)
    kind = p.rng.choice(["sum", "max", "min", "arg", "custom", "pair", "with index"])
    options = f"axis={axis}, keep_dims={kept}"
    wide = SUMS.get(a.dtype, a.dtype)
    if kind in ("sum", "pair") and a.dtype == "float16" and prod(a.shape) > FEW:
        return
    if kind == "sum":
        meaning = lambda v, _: v[i].sum(over, keepdims=kept, dtype=DTYPES[wide])  # noqa: E731
        p.add(f"tl.sum({a.name}, {options})", (shape, wide), meaning=meaning)
    elif kind in ("max", "min"):
        run = {"max": np.max, "min": np.min}[kind]
        meaning = lambda v, _: run(v[i], over, keepdims=kept).astype(DTYPES[widest(a)])  # noqa: E731
        p.add(f"tl.{kind}({a.name}, {options})", (shape, widest(a)), meaning=meaning)
    elif axis is None:
        return
    elif kind == "arg":
        name = p.rng.choice(["argmax", "argmin"])
        meaning = lambda v, _: getattr(np, name)(v[i], axis, keepdims=kept).astype(np.int32)  # noqa: E731
        p.add(f"tl.{name}({a.name}, {options})", (shape, "int32"), meaning=meaning)
    elif kind == "with index":
        name = p.rng.choice(["max", "min"])
        best = {"max": np.max, "min": np.min}[name]
        where = {"max": np.argmax, "min": np.argmin}[name]
        p.add(
            f"tl.{name}({a.name}, {options}, return_indices=True)",
            (shape, a.dtype),
            (shape, "int32"),
            meaning=[
                lambda v, _: best(v[i], axis, keepdims=kept),
                lambda v, _: where(v[i], axis, keepdims=kept).astype(np.int32),
            ],
        )
    elif kind == "custom":
        text = f"tl.reduce({a.name}, {axis}, larger, keep_dims={kept})"
        p.add(text, (shape, a.dtype), meaning=lambda v, _: v[i].max(axis, keepdims=kept))
    else:
        b = pick(p, lambda v: v.shape == a.shape)
        if b is None or a.dtype in SUMS:
            return
        j = b.index
        p.add(
            f"tl.reduce(({a.name}, {b.name}), {axis}, both, keep_dims={kept})",
            (shape, a.dtype),
            (shape, b.dtype),
            meaning=[
                lambda v, _: v[i].sum(axis, keepdims=kept, dtype=v[i].dtype),
                lambda v, _: v[j].min(axis, keepdims=kept),
            ],
        )


def widest(value: Value) -> str:
    """max and min without indices give what is small back as 32 bits."""
    return "int32" if value.dtype in SUMS else "float32" if value.dtype == "float16" else value.dtype


def scan(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and v.dtype not in SUMS and not (v.dtype == "float16" and prod(v.shape) > FEW))
    if a is None:
        return
    a = bounded(p, a)
    i, axis, back = a.index, p.rng.randrange(len(a.shape)), p.rng.random() < 0.4

    def along(x: Array, run: Callable[[Array], Array]) -> Array:
        return np.flip(run(np.flip(x, axis)), axis) if back else run(x)

    made = (a.shape, a.dtype)
    kind = p.rng.choice(["cumsum", "max", "recurrence"])
    if kind == "cumsum":
        run = lambda x: np.cumsum(x, axis, dtype=x.dtype)  # noqa: E731
        p.add(f"tl.cumsum({a.name}, {axis}, reverse={back})", made, meaning=lambda v, _: along(v[i], run))
    elif kind == "max":
        text = f"tl.associative_scan({a.name}, {axis}, larger, reverse={back})"
        p.add(text, made, meaning=lambda v, _: along(v[i], lambda x: np.maximum.accumulate(x, axis)))
    elif not is_float(a.dtype):
        b = pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
        if b is None:
            return
        j = b.index

        def recurrence(v: list[Array], part: int) -> Array:
            x, y = np.moveaxis(v[i], axis, 0), np.moveaxis(v[j], axis, 0)
            x, y = (x[::-1].copy(), y[::-1].copy()) if back else (x.copy(), y.copy())
            for n in range(1, len(x)):
                y[n] = y[n - 1] * x[n] + y[n]
                x[n] = x[n - 1] * x[n]
            found = (x, y)[part]
            return np.moveaxis(found[::-1] if back else found, 0, axis)

        p.add(
            f"tl.associative_scan(({a.name}, {b.name}), {axis}, after, reverse={back})",
            made,
            made,
            meaning=[lambda v, _: recurrence(v, 0), lambda v, _: recurrence(v, 1)],
        )


def loop(p: Program) -> None:
    """A tile carried through a loop of three turns that moves its elements."""
    a = pick(p, lambda v: bool(v.shape) and v.dtype in ("int32", "int64", "float32") and prod(v.shape) <= 512)
    if a is None:
        return
    a = bounded(p, a)
    i, axis = a.index, p.rng.randrange(len(a.shape))
    if is_float(a.dtype) and a.shape[axis] > 16:
        return  # sums of sums of sums need their bits
    turn, run = p.rng.choice(
        [
            (f"tl.flip($, {axis}) + i", lambda x, n: np.flip(x, axis) + x.dtype.type(n)),
            (
                f"$ + tl.sum($, {axis}, keep_dims=True) - i",
                lambda x, n: x + x.sum(axis, keepdims=True, dtype=x.dtype) - n,
            ),
            (
                f"$ - tl.max($, {axis}, keep_dims=True) + i",
                lambda x, n: x - x.max(axis, keepdims=True) + x.dtype.type(n),
            ),
            (f"tl.cumsum($, {axis}) * (i + 1)", lambda x, n: np.cumsum(x, axis, dtype=x.dtype) * x.dtype.type(n + 1)),
            (
                f"tl.reshape(tl.trans(tl.reshape($, ({a.shape[0]}, {prod(a.shape[1:])}))), {a.shape}) + i",
                lambda x, n: x.reshape(x.shape[0], -1).T.reshape(x.shape) + x.dtype.type(n),
            ),
        ]
    )

    def turned(v: list[Array], _: Place) -> Array:
        x = v[i]
        for n in range(3):
            x = run(x, n).astype(x.dtype)
        return x

    counter = p.rng.choice(["range(three)", "range(3)", "tl.range(0, three)", "tl.static_range(3)"])
    step = turn.replace("$", "acc")
    step = f"({step}).to(tl.{a.dtype})"
    p.add(f"acc = {a.name}\nfor i in {counter}:\n    acc = {step}\n$ = acc", (a.shape, a.dtype), meaning=turned)


def branch(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    b = a and pick(p, lambda v: v.shape == a.shape and v.dtype == a.dtype)
    if a is None or b is None:
        return
    i, j = a.index, b.index
    text = f"if pid == 1:\n    $ = {a.name}\nelse:\n    $ = {b.name}"
    p.add(text, (a.shape, a.dtype), meaning=lambda v, place: v[i] if place.program == 1 else v[j])


def histogram(p: Program) -> None:
    a = pick(p, lambda v: len(v.shape) == 1 and v.dtype == "int32")
    if a is None:
        return
    a = bounded(p, a)
    i = a.index
    p.add(
        f"tl.histogram({a.name}, 32)",
        ((32,), "int32"),
        meaning=lambda v, _: np.bincount(v[i], minlength=32).astype(np.int32),
    )


def product(p: Program) -> None:
    """A product of small integers: exact in every format."""
    a = pick(p, lambda v: v.dtype == "float32" and 256 <= prod(v.shape) <= 1024)
    if a is None:
        return
    a = bounded(p, a)
    if len(a.shape) != 2 or min(a.shape) < 16:
        shape, flat = (16, prod(a.shape) // 16), a.index
        text = f"tl.reshape({a.name}, {shape})"
        a = p.add(text, (shape, "float32"), meaning=lambda v, _: v[flat].reshape(shape))
    i = a.index
    kind = p.rng.choice(["float16", "float32"])
    text = f"tl.dot({a.name}.to(tl.{kind}), tl.trans({a.name}).to(tl.{kind}))"
    side = a.shape[0]
    p.add(text, ((side, side), "float32"), meaning=lambda v, _: v[i] @ v[i].T)


OPERATIONS: tuple[Callable[[Program], None], ...] = (
    *(
        load,
        count,
        elementwise,
        elementwise,
        convert,
        reshape,
        reshape,
        permute,
        permute,
        expand,
        join,
        join,
        split,
        order,
    ),
    *(order, gather, reduction, reduction, scan, scan, loop, branch, histogram, product),
)
