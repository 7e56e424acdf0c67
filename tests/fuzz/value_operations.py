"""Operations that extend a random program of whole ranges. Each draws its operands from the program and appends to it,
or returns without a trace when nothing fits."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from tile_programs import Array, offsets, offsets_of, packed, permutation, pick, random_shape
from value_programs import KINDS, PROGRAMS, Program, Value, computed, each, is_exact, rules, together

OPERATORS = (*rules.OPERATORS, *rules.COMPARISONS)
#: Python's, for operators.
NUMBERS = (0, 1, 2, 3, 7, 8, 15, 31, 63, 127, 128, 255, 256, -1, -2, -128, 65535, 2**31 - 1, -(2**31), 0.5, 1.0, -0.0)


def is_integer(value: Value) -> bool:
    return not rules.is_float(value.kind) and value.kind != "i1"


def quiet(x: Array) -> Array:
    """Floats as f64: C's fmax of a signalling NaN, which bits of integers may be, is NaN, that of quiet ones is not."""
    return np.where(np.isnan(x.astype(float)), np.nan, x.astype(float))


def load(p: Program) -> None:
    kind, shape = p.rng.choice(KINDS), random_shape(p, 2 ** p.rng.randint(2, 8), 3)
    strides, start, step = (
        packed(shape, permutation(p, len(shape))),
        p.rng.choice([0, 16, 5]),
        p.rng.choice([0, 256, 37]),
    )
    found = np.stack([p.inputs[kind][start + k * step + offsets_of(shape, strides)] for k in range(PROGRAMS)])
    text = f"tl.load({kind}_ptr + {start} + pid * {step} + {offsets(shape, strides)})"
    p.add(f"{text} != 0" if kind == "i1" else text, shape, kind, found)


def load_computed(p: Program) -> None:
    """A load through addresses that the program computes."""
    at = pick(p, lambda v: bool(v.shape) and is_integer(v) and rules.width(v.kind) > 8)
    if at is None:
        return
    kind, most = p.rng.choice([kind for kind in KINDS if kind != "i1"]), p.rng.choice([1023, 511, 7])
    index = (rules.exact_integers(at.array) & most).astype(np.int64)
    found, mask = p.inputs[kind][index], pick(p, lambda v: v.kind == "i1" and v.shape == at.shape)
    text = f"tl.load({kind}_ptr + ({at.name} & {most})"
    if mask is None:
        p.add(f"{text})", at.shape, kind, found)
    else:
        p.add(f"{text}, mask={mask.name}, other=3)", at.shape, kind, np.where(mask.array, found, found.dtype.type(3)))


def count(p: Program) -> None:
    """Consecutive numbers, of which some wrap around in a narrow type before they are widened."""
    size, step = 2 ** p.rng.randint(2, 8), p.rng.choice([0, 8, 100])
    start, kinds = p.rng.choice([0, 0, 3, 120, 250, 32760]), [kind for kind in KINDS if not rules.is_float(kind)][1:]
    made, text = np.add.outer(np.arange(PROGRAMS) * step + start, np.arange(size)), f"pid * {step} + {start}"
    text, kind = f"{text} + tl.arange(0, {size})", "i32"
    if p.rng.random() < 0.5:
        narrow, kind = p.rng.choice(kinds), p.rng.choice(kinds)
        made = rules.wrapped(rules.exact_integers(rules.wrapped(rules.exact_integers(made), narrow)), kind)
        text = f"({text}).to(tl.{rules.SPELLED[narrow]}).to(tl.{rules.SPELLED[kind]})"
    p.add(text, (size,), kind, made)


def defined(p: Program, operator: str, b: Value, met: str) -> Value | None:
    """``b``, or what is made of it so that shifts and quotients by it are defined."""
    if b.kind == "i1" or rules.is_float(met):
        return b
    if operator in ("<<", ">>"):
        most = min(rules.width(b.kind), rules.width(met)) - 1
        kept = rules.wrapped(rules.exact_integers(b.array) & most, b.kind)
        return p.add(f"{b.name} & {most}", b.shape, b.kind, kept)
    if operator in ("//", "%"):
        number, bad, asked = p.rng.choice([1, 3, 7, 16]), b.array == 0, f"{b.name} == 0"
        if rules.is_signed(b.kind):
            bad, asked = bad | (b.array == -1), f"({asked}) | ({b.name} == -1)"
        chosen = np.where(bad, b.array.dtype.type(number), b.array)
        return p.add(f"tl.where({asked}, {number}, {b.name})", b.shape, b.kind, chosen)
    return b


def binary(p: Program) -> None:
    a, operator = pick(p), p.rng.choice(OPERATORS)
    b = pick(p, lambda v: together(a, v) is not None)
    met = rules.meeting(a.kind, b.kind, operator)
    if is_exact(operator, met):
        b, shape = defined(p, operator, b, met), together(a, b)
        made = computed(operator, a.beside(shape), a.kind, b.beside(shape), b.kind, met)
        if made is not None:
            p.add(f"{a.name} {operator} {b.name}", shape, made[1], made[0])


def with_number(p: Program) -> None:
    """An operator with a number of Python's on either side."""
    a, number, operator, left = pick(p), p.rng.choice(NUMBERS), p.rng.choice(OPERATORS), p.rng.random() < 0.25
    own = rules.type_of_number(number)
    kinds = (own, a.kind) if left else (a.kind, own)
    met, kept = rules.meeting(*kinds, operator, left, not left), rules.meeting(a.kind, own, "+", False, True)
    fits = rules.is_float(kept) or not isinstance(number, float) and rules.holds(kept, number)
    if not fits or not is_exact(operator, met):
        return
    arrays = np.full(a.array.shape, number, rules.NUMPY[own]), a.array
    x, y = arrays if left else arrays[::-1]
    made = computed(operator, x, kinds[0], y, kinds[1], met)
    if made is not None:
        spelled = f"({number})"
        text = f"{spelled} {operator} {a.name}" if left else f"{a.name} {operator} {spelled}"
        p.add(text, a.shape, made[1], made[0])


def select(p: Program) -> None:
    """where, minimum or maximum of two types."""
    a = pick(p, lambda v: bool(v.shape))
    b = a and pick(p, lambda v: together(a, v) is not None)
    if a is None or b is None:
        return
    name, nan = p.rng.choice(["minimum", "maximum", "where"]), p.rng.random() < 0.5
    kinds = (v.kind if name == "where" or v.kind != "bf16" else "f32" for v in (a, b))
    shape, met = together(a, b), rules.meeting(*kinds, "+")
    x, y = (each(lambda z, k=v.kind: rules.converted(z, k, met), v.beside(shape)) for v in (a, b))
    which = pick(p, lambda v: v.kind == "i1" and v.shape == shape)
    if name == "where" and which is not None:
        p.add(f"tl.where({which.name}, {a.name}, {b.name})", shape, met, np.where(which.array, x, y))
    elif name != "where" and rules.is_float(met):  # the sign of a zero is anyone's
        run = getattr(np, name if nan else {"minimum": "fmin", "maximum": "fmax"}[name])
        how = ", propagate_nan=tl.PropagateNan.ALL" if nan else ""
        p.add(f"tl.{name}({a.name}, {b.name}{how}) + 0.0", shape, met, run(quiet(x), quiet(y)) + 0.0)
    elif name != "where" and met != "i1":
        p.add(f"tl.{name}({a.name}, {b.name})", shape, met, getattr(np, name)(x, y))


def unary(p: Program) -> None:
    a, name = pick(p), p.rng.choice(["-{}", "~{}", "tl.abs({})"])
    if rules.is_float(a.kind) and name != "~{}":
        p.add(name.format(a.name), a.shape, a.kind, -a.array if name == "-{}" else np.abs(a.array))
    elif is_integer(a):
        exact = rules.exact_integers(a.array)
        made = {"-{}": lambda: -exact, "~{}": lambda: ~exact, "tl.abs({})": lambda: abs(exact)}[name]()
        p.add(name.format(a.name), a.shape, a.kind, rules.wrapped(made, a.kind))


def cast(p: Program) -> None:
    """To another type, floats beyond the integers of it among them."""
    a, to = pick(p), p.rng.choice(KINDS)
    made = each(lambda z: rules.converted(z, a.kind, to), a.array)
    p.add(f"{a.name}.to(tl.{rules.SPELLED[to]})", a.shape, to, made)


def through_f8(p: Program) -> None:
    a = pick(p, lambda v: v.kind in ("f16", "bf16", "f32") and bool(v.shape))
    if a is not None:
        f8 = p.rng.choice(["f8e4m3", "f8e5m2"])
        made = each(lambda z: rules.converted(rules.converted(z, a.kind, f8), f8, a.kind), a.array)
        p.add(f"{a.name}.to(tl.{rules.SPELLED[f8]}).to(tl.{rules.SPELLED[a.kind]})", a.shape, a.kind, made)


def bitcast(p: Program) -> None:
    a = pick(p, lambda v: v.kind != "i1" and bool(v.shape))
    others = a and [k for k in KINDS if k != "i1" and rules.width(k) == rules.width(a.kind)]
    if a is None or not others:
        return
    if rules.is_float(a.kind):  # the bits of a NaN are anyone's
        held = np.where(a.array == a.array, a.array, a.array.dtype.type(0))
        a = p.add(f"tl.where({a.name} == {a.name}, {a.name}, 0.0)", a.shape, a.kind, held)
    to = p.rng.choice(others)
    made = np.ascontiguousarray(a.array).view(rules.NUMPY[to])
    p.add(f"{a.name}.to(tl.{rules.SPELLED[to]}, bitcast=True)", a.shape, to, made)


def high_product(p: Program) -> None:
    """The high half of a product of bits, also of signed integers'. The simulator has no products of 128 bits."""
    a = pick(p, lambda v: v.kind in ("i32", "u32") and bool(v.shape))
    b = a and pick(p, lambda v: v.kind == a.kind and v.shape == a.shape)
    if a is not None and b is not None:
        x, y = (rules.exact_integers(v.array) & (2**32 - 1) for v in (a, b))
        p.add(f"tl.umulhi({a.name}, {b.name})", a.shape, a.kind, rules.wrapped((x * y) >> 32, a.kind))


def move(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape))
    if a is None:
        return
    way, axis = p.rng.choice(["reshape", "permute", "expand"]), p.rng.randint(0, len(a.shape))
    if way == "permute":
        order = permutation(p, len(a.shape))
        moved = a.array.transpose(0, *(axis + 1 for axis in order))
        p.add(f"tl.permute({a.name}, {order})", moved.shape[1:], a.kind, moved)
    elif way == "reshape" or len(a.shape) < 3:
        shape = random_shape(p, prod(a.shape), 3) if way == "reshape" else (*a.shape[:axis], 1, *a.shape[axis:])
        p.add(f"tl.reshape({a.name}, {shape})", shape, a.kind, a.array)


def reduce(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and v.kind != "i1")
    if a is None:
        return
    axis, small, floating = p.rng.randrange(len(a.shape)), rules.width(a.kind) < 32, rules.is_float(a.kind)
    shape, name = (*a.shape[:axis], *a.shape[axis + 1 :]), p.rng.choice(["sum", "xor_sum", "max", "min"])
    widened = "f32" if floating else "i32" if rules.is_signed(a.kind) else "u32"
    text = f"tl.{name}({a.name}, {axis})"
    if name == "sum" and not floating:
        kind = widened if small else a.kind
        p.add(text, shape, kind, rules.wrapped(np.add.reduce(rules.exact_integers(a.array), axis + 1), kind))
    elif name == "xor_sum" and not floating:
        p.add(text, shape, a.kind, np.bitwise_xor.reduce(a.array, axis + 1))
    elif name in ("max", "min"):
        kind = a.kind if not small else "f32" if floating else "i32"
        run = {"max": np.fmax, "min": np.fmin}[name] if floating else {"max": np.maximum, "min": np.minimum}[name]
        made = run.reduce(quiet(a.array) if floating else a.array, axis + 1)
        p.add(f"{text} + 0.0" if floating else text, shape, kind, made + 0.0 if floating else made)


def scan(p: Program) -> None:
    a = pick(p, lambda v: bool(v.shape) and is_integer(v))
    if a is None:
        return
    axis, back = p.rng.randrange(len(a.shape)), p.rng.random() < 0.4
    name = p.rng.choice(["cumsum", "cumprod", "first", "segmented"])
    begins = pick(p, lambda v: v.shape == a.shape and v.kind == "i1")
    # Elements in the order of the scan, as integers without bounds.
    x = np.moveaxis(rules.exact_integers(a.array), axis + 1, 0)[:: -1 if back else 1].copy()
    kind = a.kind
    if name == "segmented" and begins is not None:
        starts = np.moveaxis(begins.array, axis + 1, 0)[:: -1 if back else 1]
        for n in range(1, len(x)):
            x[n] = np.where(starts[n], x[n], x[n - 1] + x[n])
        text = f"tl.associative_scan(({a.name}, {begins.name}.to(tl.int32)), {axis}, segmented, reverse={back})[0]"
    elif name in ("first", "segmented"):
        for n in range(1, len(x)):
            x[n] = np.where(x[n - 1] != 0, x[n - 1], x[n])
        text = f"tl.associative_scan({a.name}, {axis}, first, reverse={back})"
    else:
        x = {"cumsum": np.add, "cumprod": np.multiply}[name].accumulate(x)
        text = f"tl.{name}({a.name}, {axis}, reverse={back})"
        if rules.width(kind) < 32 and name == "cumsum":
            kind = "i32" if rules.is_signed(kind) else "u32"
    p.add(text, a.shape, kind, rules.wrapped(np.moveaxis(x[:: -1 if back else 1], 0, axis + 1), kind))


def loop(p: Program) -> None:
    """Two tiles carried through a loop, which may change places."""
    a = pick(p, lambda v: bool(v.shape) and v.kind in ("i32", "i64", "u32", "i16", "u8", "f32", "bf16", "f16"))
    b = a and pick(p, lambda v: v.shape == a.shape and v.kind == a.kind)
    if a is None or b is None:
        return
    bounds = p.rng.choice(
        [(0, 5, 1), (3, 17, 4), (10, -3, -3), (0, 0, 1), ("few", 40, 9), (0, "few", 1), (0, "even", 16)]
    )
    operators, swap = (p.rng.choice("+-*"), p.rng.choice("+-*")), p.rng.random() < 0.4
    name, index = f"w{len(p.values)}", f"i.to(tl.{rules.SPELLED[a.kind]})"
    p.lines += [f"{name}, {name}o = {a.name}, {b.name}", f"for i in range({', '.join(map(str, bounds))}):"]
    p.lines += [f"    {name}t = {name} {operators[0]} {name}o", f"    {name}o = {name if swap else name + 'o'}"]
    p.lines += [f"    {name} = {name}t {operators[1]} {index}"]
    x, other = a.array, b.array
    for i in range(*(p.numbers.get(bound, bound) for bound in bounds)):
        number = each(lambda z: rules.converted(z, "i32", a.kind), np.full(x.shape, i, np.int32))
        made, _ = computed(operators[0], x, a.kind, other, a.kind, a.kind)
        other = x if swap else other
        x, _ = computed(operators[1], made, a.kind, number, a.kind, a.kind)
    p.add(name, a.shape, a.kind, x)


def branch(p: Program) -> None:
    by, a = pick(p, lambda v: v.shape == () and v.kind in ("i32", "i64", "u32")), pick(p, lambda v: bool(v.shape))
    b = a and pick(p, lambda v: v.shape == a.shape and v.kind == a.kind)
    if by is None or a is None or b is None:
        return
    number, asked, name = p.rng.choice([0, 1, 5, 16]), p.rng.choice(["<", "==", ">="]), f"w{len(p.values)}"
    p.lines += [f"if {by.name} {asked} {number}:", f"    {name} = {a.name}", "else:", f"    {name} = {b.name}"]
    which = rules.COMPARISONS[asked](by.array, number).reshape(PROGRAMS, *[1] * len(a.shape))
    p.add(name, a.shape, a.kind, np.where(which, a.array, b.array))


OPERATIONS: tuple[Callable[[Program], None], ...] = (
    *(
        load,
        load,
        count,
        count,
        binary,
        binary,
        binary,
        binary,
        with_number,
        with_number,
        with_number,
        select,
        select,
        unary,
    ),
    *(cast, cast, cast, through_f8, bitcast, bitcast, high_product, move, move, move, reduce, reduce, scan, scan),
    *(load_computed, load_computed, loop, loop, branch),
)
