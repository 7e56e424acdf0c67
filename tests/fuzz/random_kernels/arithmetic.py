"""Operations on elements: integers that wrap, floats with their errors, comparisons and choices."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import erf

import numpy as np

from .bounds import Known, Reject, larger_error, product_error, result, rounded, total_error, ulp, uses_last_bits
from .building import Builder
from .casts import bounded, cast
from .kinds import BF16, F16, F32, F64, I1, I8, I16, I32, I64, INTEGERS, NUMBERS, U32, Array, Kind
from .loads import counted, new_load
from .statements import Variable, beside

WRAPPING: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def like(b: Builder, shape: tuple[int, ...], kind: Kind) -> Variable:
    """Another value of a shape and type, from anywhere."""
    how = b.choose("load", "pool", "pool", "scalar", "count") if shape else b.choose("load", "pool")
    if how == "pool":
        found = [variable for variable in b.pool if variable.shape == shape]
        same = [variable for variable in found if variable.kind is kind]
        if same and b.chance(0.7):
            return b.rng.choice(same[-6:])
        if found:
            try:
                return cast(b, b.rng.choice(found[-6:]), kind)
            except Reject:
                pass
    scalars = [variable for variable in b.pool if not variable.shape and variable.kind is kind]
    if how == "scalar" and scalars:
        one = b.rng.choice(scalars)
        text = b.choose(
            f"tl.full({list(shape)}, {one}, {kind.spelled})",
            f"tl.broadcast_to({one}, {list(shape)})",
            f"{one} + tl.zeros({list(shape)}, {kind.spelled})",
        )
        full = (b.programs, *shape)
        return b.emit(
            text, [one], [(shape, kind)], lambda x: x.moved(lambda d: np.broadcast_to(beside(d, shape), full))
        )
    if how == "count" and kind in (I32, I64, F32) and max(shape) > 1:
        return counted(b, shape, kind)
    return new_load(b, shape, kind)


def pair(b: Builder, shape: tuple[int, ...] | None = None) -> tuple[Variable, Variable]:
    """Two values of one shape and type."""
    if shape is None:
        a = b.pick(lambda v: v.kind in NUMBERS and v.size <= b.limit)
    else:
        found = [v for v in b.pool if v.shape == shape and v.kind in NUMBERS]
        a = b.rng.choice(found[-6:]) if found and b.chance(0.8) else new_load(b, shape, b.rng.choice(NUMBERS))
    return a, like(b, a.shape, a.kind)


def binary(b: Builder) -> None:
    a, o = pair(b)
    (integer_binary if a.kind.is_integer else float_binary)(b, a, o)


# Integers -----------------------------------------------------------------------------------------------------


def integer_binary(b: Builder, a: Variable, o: Variable) -> Variable:
    """An operation on two integers of one type."""
    kind, made = a.kind, [(a.shape, a.kind)]
    name = b.choose(*WRAPPING, "//", "//", "%", "%", "<<", ">>", "minimum", "maximum", "umulhi", "cdiv")
    if name in WRAPPING:
        run = WRAPPING[name]
        return b.emit(f"{a} {name} {o}", [a, o], made, lambda x, y: Known(run(x.values, y.values)))
    if name in ("minimum", "maximum"):
        return b.emit(f"tl.{name}({a}, {o})", [a, o], made, lambda x, y: Known(getattr(np, name)(x.values, y.values)))
    if name == "umulhi":
        if kind is not U32:
            raise Reject("of u32")
        return b.emit(f"tl.umulhi({a}, {o})", [a, o], made, lambda x, y: Known(_high(x.values, y.values)))
    if name == "cdiv":
        return _ceiling(b, a)
    if name in ("<<", ">>"):
        most = kind.numpy(kind.bits - 1)
        steps = b.emit(f"{o} & {most}", [o], made, lambda y: Known(y.values & most), pooled=False)
        move = np.left_shift if name == "<<" else np.right_shift
        return b.emit(f"{a} {name} {steps}", [a, steps], made, lambda x, y: Known(move(x.values, y.values)))
    return _division(b, name, a, o)


def _high(x: Array, y: Array) -> Array:
    return (x.astype(np.uint64) * y.astype(np.uint64) >> np.uint64(32)).astype(np.uint32)


def _ceiling(b: Builder, a: Variable) -> Variable:
    if a.kind is not I32:
        raise Reject("of i32")
    by, made = b.choose(1, 3, 8), [(a.shape, I32)]
    few = b.emit(f"{a} & 0xffff", [a], made, lambda x: Known(x.values & np.int32(0xFFFF)), pooled=False)
    return b.emit(f"tl.cdiv({few}, {by})", [few], made, lambda x: Known((x.values + np.int32(by - 1)) // np.int32(by)))


def _division(b: Builder, name: str, a: Variable, o: Variable) -> Variable:
    """``//`` or ``%`` by a number, an argument, or a tile without zeros: truncated, as in C."""
    kind, made = a.kind, [(a.shape, a.kind)]
    if b.chance(0.3):
        one = kind.numpy(b.choose(1, 3))
        if a.shape:
            text = f"tl.where({o} == 0, tl.full({list(a.shape)}, {one}, {kind.spelled}), {o})"
            by = b.emit(text, [o], made, lambda y: Known(np.where(y.values == 0, one, y.values)), pooled=False)
        else:
            by = b.emit(f"{o} | 1", [o], made, lambda y: Known(y.values | kind.numpy(1)), pooled=False)
        return b.emit(f"{a} {name} {by}", [a, by], made, lambda x, y: Known(divided(name, x.values, y.values)))
    number = b.choose(1, 2, 3, 7, 8, 10, 16, 100) * (-1 if kind.is_signed and b.chance(0.4) else 1)
    text = str(b.argument(number)) if kind is I32 and b.chance(0.4) else f"({number})"
    by_number: Array = np.array(number).astype(kind.numpy)
    return b.emit(f"{a} {name} {text}", [a], made, lambda x: Known(divided(name, x.values, by_number)))


def divided(name: str, x: Array, y: Array) -> Array:
    """The quotient ``//``, truncated towards zero, or the remainder ``%``, with the sign of ``x``."""
    if x.dtype.kind == "u":
        return x // y if name == "//" else x % y
    if np.any((x == np.iinfo(x.dtype).min) & (y == -1)):
        raise Reject("a quotient that does not fit")
    remainder = np.fmod(x, y)
    return remainder if name == "%" else (x - remainder) // y


def mixed_integers(b: Builder) -> None:
    """Integers of two types: promotion."""
    a = b.pick(lambda v: v.kind.is_integer and bool(v.shape))
    o = like(b, a.shape, b.rng.choice([kind for kind in INTEGERS if kind is not a.kind]))
    x, y = a.kind, o.kind
    if x.is_signed == y.is_signed:
        to = max(x, y, key=lambda kind: kind.bits)
    else:
        signed, unsigned = (x, y) if x.is_signed else (y, x)
        to = unsigned if unsigned.bits >= signed.bits else signed
    name = b.choose(*WRAPPING)
    run = WRAPPING[name]
    text, made = f"{a} {name} {o}", [(a.shape, to)]
    b.emit(text, [a, o], made, lambda p, q: Known(run(p.values.astype(to.numpy), q.values.astype(to.numpy))))


def with_number(b: Builder) -> None:
    """A tile and a number of Python's, on either side."""
    a = b.pick(lambda v: v.kind in (I8, I16, I32, I64, U32, F16, F32) and bool(v.shape))
    if a.kind.is_integer:
        number, name = b.choose(1, 2, 3, 7, 100), b.choose("+", "*", "-")
        left = b.chance(0.4)
        text = f"{number} {name} {a}" if left else f"{a} {name} {number}"
        run, one = WRAPPING[name], a.kind.numpy(number)
        b.emit(text, [a], [(a.shape, a.kind)], lambda x: Known(run(one, x.values) if left else run(x.values, one)))
        return
    factor = b.choose(0.5, 2.0, -1.0, 3.0, 0.25)
    text = b.choose(f"{a} * {factor}", f"{factor} * {a}")
    b.emit(text, [a], [(a.shape, a.kind)], lambda x: result(x.values * factor, x.slack * abs(factor), a.kind))


# Floats -------------------------------------------------------------------------------------------------------


def float_binary(b: Builder, a: Variable, o: Variable) -> Variable:
    """An operation on two floats of one type."""
    kind, made = a.kind, [(a.shape, a.kind)]
    name = b.choose("+", "+", "-", "*", "*", "minimum", "maximum", "fma", "/")
    if name in "+-":
        run = WRAPPING[name]
        text = f"{a} {name} {o}"
        return b.emit(text, [a, o], made, lambda x, y: result(run(x.values, y.values), total_error(x, y), kind))
    if name == "*":
        meaning = lambda x, y: result(x.values * y.values, product_error(x, y), kind)  # noqa: E731
        return b.emit(f"{a} * {o}", [a, o], made, meaning)
    if name in ("minimum", "maximum"):
        compared = "<" if name == "minimum" else ">"
        text = b.choose(f"tl.{name}({a}, {o}).to({kind.spelled})", f"tl.where({a} {compared} {o}, {a}, {o})")
        run = getattr(np, name)
        return b.emit(text, [a, o], made, lambda x, y: Known(run(x.values, y.values), larger_error(x, y)))
    if name == "fma":
        return _fused(b, a, o)
    if kind in (F16, BF16):
        raise Reject("quotients of f32 and f64")
    by = b.emit(f"tl.abs({o}) + 1.0", [o], made, lambda y: result(np.abs(y.values) + 1, y.error, kind), pooled=False)
    return b.emit(f"{a} / {by}", [a, by], made, lambda x, y: quotient(x, y, kind))


def quotient(x: Known, y: Known, kind: Kind) -> Known:
    """x / y of y >= 1. One of f32 is an ulp beside the nearest number now and then, as Triton's are, also where that is
    the quotient itself, unless y is a power of two."""
    exact = x.values / y.values
    error = (x.slack + np.abs(exact) * y.slack) / np.maximum(y.values - y.slack, 0.5)
    beside = ulp(exact, kind) if kind is F32 else 0.0
    return result(exact, error + np.where(np.frexp(y.values)[0] != 0.5, beside, 0.0), kind)


def _fused(b: Builder, a: Variable, o: Variable) -> Variable:
    """A product and a sum, in one instruction or two."""
    c, kind = like(b, a.shape, a.kind), a.kind

    def meaning(x: Known, y: Known, z: Known) -> Known:
        product, error = x.values * y.values, product_error(x, y)
        # Of f64 nothing tells what one product lost: its last bits are 0 now and then.
        rounds = rounded(product, kind) != product if kind is not F64 else uses_last_bits(product).any(keepdims=True)
        if rounds.any():
            error = (0.0 if error is None else error) + np.where(rounds, ulp(product, kind), 0.0)
        if error is not None or not z.exact:
            error = (0.0 if error is None else error) + z.slack
        return result(product + z.values, error, kind)

    text = b.choose(f"tl.fma({a}, {o}, {c})", f"{a} * {o} + {c}", f"{c} + {o} * {a}")
    return b.emit(text, [a, o, c], [(a.shape, kind)], meaning)


def mixed_floats(b: Builder) -> None:
    """A float and another type: promotion."""
    a = b.pick(lambda v: v.kind in (F16, BF16, F32, I8, I16, I32) and bool(v.shape))
    o = like(b, a.shape, b.choose(F32, F64, BF16, F16) if a.kind in (F16, F32) else b.choose(F16, F32, F64))
    to = next((kind for kind in (F64, F32, F16) if kind in (a.kind, o.kind)), None)
    if to is None or (a.kind.is_integer and (to is F16 or a.kind.bits > 16)):
        raise Reject("not exact")
    meaning = lambda x, y: result(x.values.astype(np.float64) + y.values, total_error(x, y), to)  # noqa: E731
    b.emit(f"{a} + {o}", [a, o], [(a.shape, to)], meaning)


def unary(b: Builder) -> None:
    a = b.pick(lambda v: v.kind in (F16, F32, F64, I8, I16, I32, I64))
    made = [(a.shape, a.kind)]
    if a.kind.is_integer:
        text, run = b.choose((f"tl.abs({a})", np.abs), (f"-{a}", np.negative), (f"~{a}", np.invert))
        b.emit(text, [a], made, lambda x: Known(run(x.values)))
        return
    name = b.choose("-", "abs", "floor", "ceil", *FUNCTIONS)
    if name == "-":
        b.emit(f"-{a}", [a], made, lambda x: Known(-x.values, x.error))
    elif name == "abs":
        b.emit(f"tl.abs({a})", [a], made, lambda x: Known(np.abs(x.values), x.error))
    elif a.kind is F16:
        raise Reject("functions of f32 and f64")
    elif name in ("floor", "ceil"):
        b.emit(f"tl.{name}({a})", [a], made, lambda x: Known(getattr(np, name)(x.settled())))
    else:
        function(b, a, name)


def _erf(x: Array) -> Array:
    values: Array = np.vectorize(erf, otypes=[float])(x)
    return values


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "erf": _erf,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "log": np.log,
    "log2": np.log2,
}
#: Where functions are computed: up to the number, or from 1 on.
WITHIN = {"exp": 8.0, "exp2": 8.0, "sigmoid": 8.0, "sin": 30.0, "cos": 30.0, "erf": 30.0}


def function(b: Builder, a: Variable, name: str) -> Variable:
    """A function of the library, in a range where it is well-conditioned."""
    kind, made, run = a.kind, [(a.shape, a.kind)], FUNCTIONS[name]
    if name in WITHIN:
        a = bounded(b, a, WITHIN[name])
    else:
        a = b.emit(f"tl.abs({a}) + 1.0", [a], made, lambda x: result(np.abs(x.values) + 1, x.error, kind), pooled=False)
    relative = 4e-6 if kind is F32 else 1e-14
    around_zero = 0.3 if name in ("sin", "cos", "log", "log2") else 0.0

    def meaning(x: Known) -> Known:
        value = run(x.values)
        steepest = value * np.exp(np.minimum(x.slack, 1)) if name in ("exp", "exp2") else 1.5
        own = np.abs(value) * (1 + np.abs(x.values) * name.startswith("exp")) + around_zero
        return result(value, x.slack * steepest + relative * own, kind)

    return b.emit(f"tl.{name}({a})", [a], made, meaning)


# Choices ------------------------------------------------------------------------------------------------------


def compare(b: Builder, a: Variable, o: Variable) -> Variable:
    name = b.choose(*COMPARISONS)
    run = COMPARISONS[name]

    def meaning(x: Known, y: Known) -> Known:
        if not (x.exact and y.exact) and np.any(np.abs(x.values - y.values) <= x.slack + y.slack):
            raise Reject("undecided")
        return Known(run(x.values, y.values))

    return b.emit(f"{a} {name} {o}", [a, o], [(a.shape, I1)], meaning)


def where(b: Builder) -> None:
    a, o = pair(b)
    condition = compare(b, *pair(b, a.shape))
    if b.chance(0.3):
        other = compare(b, *pair(b, a.shape))
        name = b.choose("&", "|", "^")
        text, run = f"{condition} {name} {other}", getattr(operator, {"&": "and_", "|": "or_", "^": "xor"}[name])
        made = [(a.shape, I1)]
        condition = b.emit(text, [condition, other], made, lambda x, y: Known(run(x.values, y.values)))

    def chosen(c: Known, x: Known, y: Known) -> Known:
        error = None if x.exact and y.exact else np.where(c.values, x.slack, y.slack)
        return Known(np.where(c.values, x.values, y.values), error)

    text = f"tl.where({condition}, {a}, {o})"
    b.emit(text, [condition, a, o], [(a.shape, a.kind)], chosen)


def chosen_scalar(b: Builder) -> None:
    """One number or another: a conditional expression."""
    a = b.pick(lambda v: not v.shape and v.kind in (I32, I64, F32))
    o, every = like(b, (), a.kind), b.choose(2, 3)
    text = b.choose(f"{a} if pid % {every} == 0 else {o}", f"tl.where(pid % {every} == 0, {a}, {o})")

    def meaning(x: Known, y: Known, pid: Known) -> Known:
        first = pid.values % every == 0
        error = None if x.exact and y.exact else np.where(first, x.slack, y.slack)
        return Known(np.where(first, x.values, y.values), error)

    b.emit(text, [a, o, b.pid], [((), a.kind)], meaning)


def called(b: Builder) -> None:
    """A function of the kernel's module, which calls another one."""
    a = b.pick(lambda v: v.kind in (I32, I64) and v.size <= b.limit)
    o, flag = like(b, a.shape, a.kind), b.choose(True, False)
    made = [(a.shape, a.kind)] * 2

    def meaning(x: Known, y: Known) -> list[Known]:
        low, high = np.minimum(x.values, y.values), np.maximum(x.values, y.values)
        return [Known(low if flag else high - low), Known(high)]

    b.emit(f"f_ordered({a}, {o}, {flag})", [a, o], made, meaning)


def assembly(b: Builder) -> None:
    """PTX for each element."""
    if not b.assembly:
        raise Reject("not for GPUs")
    a = b.pick(lambda v: v.kind in (I32, U32, F32) and bool(v.shape) and v.size >= 4)
    o, made = like(b, a.shape, a.kind), [(a.shape, a.kind)]
    call = f"dtype={a.kind.spelled}, is_pure={b.choose(True, False)}, pack=1)"
    if a.kind is F32:
        text = f'tl.inline_asm_elementwise("max.f32 $0, $1, $2;", "=f,f,f", [{a}, {o}], {call}'
        b.emit(text, [a, o], made, lambda x, y: Known(np.maximum(x.values, y.values), larger_error(x, y)))
    elif a.kind is I32 and b.chance(0.3):
        ptx = '"add.s32 $0, $2, $3; sub.s32 $1, $2, $3;", "=&r,=&r,r,r"'
        text = f"tl.inline_asm_elementwise({ptx}, [{a}, {o}], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)"
        b.emit(text, [a, o], made * 2, lambda x, y: [Known(x.values + y.values), Known(x.values - y.values)])
    else:
        ptx, run = b.choose(("add.u32", np.add), ("xor.b32", np.bitwise_xor), ("mul.lo.u32", np.multiply))
        text = f'tl.inline_asm_elementwise("{ptx} $0, $1, $2;", "=r,r,r", [{a}, {o}], {call}'
        b.emit(text, [a, o], made, lambda x, y: Known(run(x.values, y.values)))
