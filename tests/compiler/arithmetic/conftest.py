"""What C and Triton's documentation say a kernel computes, written down on NumPy without the compiler's own rules.

Everything here is a statement about the language: types by table, integers with C's meaning, floats rounded once. The
tests compare each target with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.ir import Function

Array = np.ndarray[Any, Any]

NUMPY: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "i1": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
        "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
        "f16": "float16", "bf16": ml_dtypes.bfloat16, "f32": "float32", "f64": "float64",
        "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    }.items()
}  # fmt: skip
SPELLED = {
    "i1": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    "f8e4m3": "float8e4nv", "f8e5m2": "float8e5",
}  # fmt: skip
#: Types with arithmetic, in the order of the table below.
NUMBERS = tuple(name for name in NUMPY if not name.startswith("f8"))

# The type in which two tensors meet (rows: left, columns: right). bf16 stays only among its own; f16 takes in bf16 and
# integers; the rest is C's usual arithmetic conversion with int1 as an unsigned type of one bit.
_MEETING = """
        i1   i8   i16  i32  i64  u8   u16  u32  u64  f16  bf16 f32  f64
  i1    i1   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f32  f64
  i8    i8   i8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f32  f64
  i16   i16  i16  i16  i32  i64  i16  u16  u32  u64  f16  f32  f32  f64
  i32   i32  i32  i32  i32  i64  i32  i32  u32  u64  f16  f32  f32  f64
  i64   i64  i64  i64  i64  i64  i64  i64  i64  u64  f16  f32  f32  f64
  u8    u8   u8   i16  i32  i64  u8   u16  u32  u64  f16  f32  f32  f64
  u16   u16  u16  u16  i32  i64  u16  u16  u32  u64  f16  f32  f32  f64
  u32   u32  u32  u32  u32  i64  u32  u32  u32  u64  f16  f32  f32  f64
  u64   u64  u64  u64  u64  u64  u64  u64  u64  u64  f16  f32  f32  f64
  f16   f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f16  f32  f64
  bf16  f32  f32  f32  f32  f32  f32  f32  f32  f32  f16  bf16 f32  f64
  f32   f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f32  f64
  f64   f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64  f64
"""


def _read_table() -> dict[tuple[str, str], str]:
    heads, *rows = (line.split() for line in _MEETING.strip().splitlines())
    return {(row[0], column): met for row in rows for column, met in zip(heads, row[1:], strict=True)}


_TABLE = _read_table()


def kind(name: str) -> int:
    """bool < integers < floats."""
    return 0 if name == "i1" else 2 if is_float(name) else 1


def is_float(name: str) -> bool:
    return "f" in name


def is_signed(name: str) -> bool:
    return name[0] == "i" and name != "i1"


def width(name: str) -> int:
    return 1 if name == "i1" else 8 * NUMPY[name].itemsize


def type_of_number(number: float) -> str:
    """The type of a Python number that meets a tensor of a lower kind."""
    if isinstance(number, bool):
        return "i1"
    if isinstance(number, int):
        return next(n for n in ("i32", "u32", "i64", "u64") if holds(n, number))
    small = 0 < abs(number) < 2.0**-126 or 3.5e38 < abs(number) < float("inf")
    return "f64" if small else "f32"


def holds(name: str, number: int) -> bool:
    low, high = (-(1 << width(name) - 1), 1 << width(name) - 1) if is_signed(name) else (0, 1 << width(name))
    return low <= number < high


def meeting(a: str, b: str, operator: str, a_number: bool = False, b_number: bool = False) -> str | None:
    """The type in which operands of the types ``a`` and ``b`` are computed; None where the language refuses them.

    A number joins at the type of the other operand, but is compared as a tensor of its own type."""
    divides = operator in ("/", "//", "%")
    if operator in COMPARISONS:
        met = _TABLE[a, b]
    elif a_number != b_number and kind(a if a_number else b) <= kind(b if a_number else a):
        met = b if a_number else a
    elif divides and not is_float(a) and not is_float(b) and is_signed(a) != is_signed(b):
        return None
    else:
        met = _TABLE[a, b]
    if operator in ("//", "&", "|", "^", "<<", ">>") and is_float(met):
        return None
    return "f32" if divides and met in ("f16", "bf16") else met


# Conversion --------------------------------------------------------------------------------------------------


@cache
def _finite(name: str) -> tuple[Array, Array]:
    """All finite values of a narrow format in rising order (one zero), and whether their last bit is 0."""
    unsigned = np.dtype(f"u{NUMPY[name].itemsize}")
    codes = np.arange(1 << width(name)).astype(unsigned)
    values = codes.view(NUMPY[name]).astype(np.float64)
    keep = np.isfinite(values) & ~((values == 0) & (codes != 0))
    order = np.argsort(values[keep])
    return values[keep][order].astype(np.longdouble), (codes[keep][order] & 1) == 0


def rounded(x: Array, name: str, to_zero: bool = False) -> Array:
    """Numbers (exact in long double) as a float type, rounded once; 8-bit formats saturate, but for infinities that go
    to f8e5m2 towards zero: Triton takes the upper byte of what cvt.rz.f16.f32 gives."""
    wide = np.asarray(x, np.longdouble)
    dtype = NUMPY[name]
    if name in ("f32", "f64"):
        near = wide.astype(dtype)
        too_far = to_zero & (np.abs(near.astype(np.longdouble)) > np.abs(wide))
        return np.where(too_far & np.isfinite(wide), np.nextafter(near, dtype.type(0)), near).astype(dtype)
    values, even = _finite(name)
    largest = values[-1]
    place = np.clip(np.searchsorted(values, np.nan_to_num(wide, nan=0.0), "right"), 1, len(values) - 1)
    below, above = values[place - 1], values[place]
    down, up = wide - below, above - wide
    take_above = (up < down) | ((up == down) & even[place])
    if to_zero:
        take_above = np.where(wide < 0, down != 0, up == 0)
    made = np.where(take_above, above, below)
    half_step = (values[-1] - values[-2]) / 2
    if to_zero or width(name) == 8:
        made = np.where(np.abs(wide) > largest, np.copysign(largest, wide), made)
        if width(name) > 8 or (to_zero and name == "f8e5m2"):
            made = np.where(np.isinf(wide), wide, made)
    else:
        beyond = np.abs(wide) >= largest + half_step
        made = np.where(beyond, np.copysign(np.inf, wide), made)
    made = np.where(np.isnan(wide), np.nan, np.copysign(made, wide))
    return made.astype(np.float64).astype(dtype)


def wrapped(x: Array, name: str) -> Array:
    """Integers (as Python's, exact) modulo 2**width."""
    if name == "i1":
        return np.array([bool(int(v) & 1) for v in x.flat]).reshape(x.shape)
    bits = np.array([int(v) & ((1 << width(name)) - 1) for v in x.flat], np.uint64).reshape(x.shape)
    return bits.astype(f"u{NUMPY[name].itemsize}").view(NUMPY[name])


def exact_integers(x: Array) -> Array:
    """Integers as Python's own."""
    return np.array([int(v) for v in x.flat], object).reshape(x.shape)


def converted(x: Array, source: str, to: str, to_zero: bool = False) -> Array:
    """``x`` of the type ``source`` as the type ``to``. Float to integer truncates, out of range as PTX's cvt does."""
    if source == to:
        return x
    wide = x.astype(np.float64) if is_float(source) else x
    if to == "i1":
        return wide != 0
    if is_float(to):
        return rounded(wide.astype(np.longdouble), to, to_zero)
    if is_float(source):
        return wrapped(np.array([_limited(v, source, to) for v in wide.tolist()], object), to)
    return wrapped(exact_integers(x), to)


def _limited(value: float, source: str, to: str) -> int:
    """A number as cvt.rzi gives it, which has no integers of 8 bits: of 16 bits at least, at most the largest of them
    (as seen on an H100 in kernels of deuteron and of Triton)."""
    bits = max(width(to), 16)
    least, largest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed(to) else (0, 2**bits - 1)
    if value != value:
        return 2 ** (bits - 1) if source == "f64" or bits == 64 else 0
    return largest if value >= largest else least if value <= least else int(value)


# Operators ---------------------------------------------------------------------------------------------------


def _divided(a: Array, b: Array) -> Array:
    """C's quotient: towards zero."""
    pairs = zip(a, b, strict=True)
    return np.array([abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else 0 for x, y in pairs], object)


def _integer_operation(operator: str, a: Array, b: Array) -> Array:
    match operator:
        case "+" | "-" | "*" | "&" | "|" | "^" | "<<" | ">>":
            return np.array([_PYTHON[operator](x, y) for x, y in zip(a, b, strict=True)], object)
        case "//":
            return _divided(a, b)
        case "%":
            return a - _divided(a, b) * b
    raise AssertionError(operator)


_PYTHON: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
    "&": lambda x, y: x & y, "|": lambda x, y: x | y, "^": lambda x, y: x ^ y,
    "<<": lambda x, y: x << y, ">>": lambda x, y: x >> y,
}  # fmt: skip

_FLOATS: dict[str, Callable[[Array, Array], Array]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod,
}  # fmt: skip

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip

OPERATORS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>")


def operate(operator: str, x: Array, a: str, y: Array, b: str, met: str) -> tuple[Array, str]:
    """``x operator y``, computed in the type ``met``, with the type of the result."""
    left, right = converted(x, a, met), converted(y, b, met)
    if operator in COMPARISONS:
        return COMPARISONS[operator](left, right), "i1"
    if operator == "/" and not is_float(met):
        left, right, met = converted(left, met, "f32"), converted(right, met, "f32"), "f32"
    if is_float(met):
        # One operation on f16 and bf16, done in f32 and rounded, is rounded once (24 >= 2 * 11 + 2).
        wide = np.float64 if met == "f64" else np.float32
        made = _FLOATS[operator](left.astype(wide), right.astype(wide))
        return made if met in ("f32", "f64") else rounded(made.astype(np.longdouble), met), met
    if operator == ">>":
        # The sign of the left operand decides, on the bits of the common type.
        signed = f"i{width(met)}" if is_signed(a) else met
        left = converted(left, met, signed)
    made = _integer_operation(operator, exact_integers(left), exact_integers(right))
    return wrapped(made, met), met


# Values ------------------------------------------------------------------------------------------------------


def edges(name: str) -> list[float]:
    """Values where mistakes show."""
    if name == "i1":
        return [0, 1]
    if not is_float(name):
        info = np.iinfo(NUMPY[name])
        return [0, 1, 2, 3, 7, int(info.max), int(info.max) - 1, *((-1, -2, -7, int(info.min)) if info.min else ())]
    info = ml_dtypes.finfo(NUMPY[name])
    tiny, largest, step = float(info.smallest_subnormal), float(info.max), float(info.eps)
    sides = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, tiny, float(info.tiny), largest, 1 + step]
    if name != "f8e4m3":
        sides.append(float("inf"))
    return [*sides, *(-v for v in sides), float("nan")]


def values(name: str, count: int, rng: np.random.Generator) -> Array:
    """Edges, then random values of every magnitude."""
    chosen = edges(name)[:count]
    more = count - len(chosen)
    if is_float(name):
        spread = rng.uniform(-1, 1, more) * 2.0 ** rng.integers(-8, 12, more)
        spread = np.where(rng.random(more) < 0.3, np.rint(spread), spread)
        return np.concatenate([np.array(chosen, np.float64), spread]).astype(NUMPY[name])
    bits = rng.integers(0, 2**64, more, np.uint64) >> rng.integers(0, 64, more, np.uint64)
    return wrapped(exact_integers(np.array([*chosen, *bits.tolist()], object)), name)


# Running -----------------------------------------------------------------------------------------------------

HEAD = "import deuteron as triton\nimport deuteron.language as tl\nfrom deuteron.language.extra import libdevice\n"


def kernel(lines: Sequence[str], inputs: Mapping[str, str], outputs: Sequence[str], size: int) -> Function:
    """A kernel that loads every input, runs ``lines`` and stores r0, r1, ... of the types ``outputs``."""
    names = [*inputs, *(f"out{i}" for i in range(len(outputs)))]
    body = [f"    {name} = tl.load({name}_ptr + at)" for name in inputs]
    body += [f"    {name} = {name} != 0" for name, type in inputs.items() if type == "i1"]
    body += [f"    {line}" for line in lines]
    body += [f"    tl.store(out{i}_ptr + at, r{i})" for i in range(len(outputs))]
    parameters = ", ".join(f"{name}_ptr" for name in names)
    text = "\n".join([HEAD, "@triton.jit", f"def every({parameters}):", f"    at = tl.arange(0, {size})", *body])
    types = [*inputs.values(), *outputs]
    signature = {f"{n}_ptr": f"*{'i8' if t == 'i1' else t}:16" for n, t in zip(names, types, strict=True)}
    return lower(KernelSource.from_text(text + "\n", "every"), signature, {})


def in_memory(x: Array) -> Array:
    """Booleans take a byte."""
    return x.astype(np.int8) if x.dtype == np.bool_ else x


def differing(found: Array, wanted: Array, steps: int) -> Array:
    """Where two arrays of one type differ: any NaN equals any other, -0 is not 0. f32 may be ``steps`` representable
    numbers apart.
    """
    if wanted.dtype == np.bool_ or wanted.dtype.kind in "iu":
        return found != wanted.astype(found.dtype)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) & (np.signbit(a) == np.signbit(b))
    if steps:
        codes = [np.abs(v).view(np.uint32).astype(np.int64) for v in (found, wanted)]
        same |= (np.abs(codes[0] - codes[1]) <= steps) & (np.signbit(a) == np.signbit(b))
    return ~(same | np.isnan(a) & np.isnan(b))


class Case:
    """Expressions with what they shall give, values and type: run together as one kernel."""

    def __init__(self, **inputs: tuple[str, Array]) -> None:
        self.inputs = {name: type for name, (type, _) in inputs.items()}
        self.arrays = [in_memory(array) for _, array in inputs.values()]
        self.size = len(self.arrays[0])
        self.lines: list[str] = []
        self.wanted: list[tuple[str, Array, str, Array | None, bool, int]] = []

    def expect(
        self,
        expression: str,
        wanted: Array,
        type: str,
        where: Array | None = None,
        steps: int = 0,
    ) -> None:
        """``wanted``: one number for all elements, or each. ``where``: the elements that are defined. ``steps``: as
        in :func:`differing`.
        """
        number = len(self.wanted)
        self.lines.append(f"made{number} = {expression}")
        self.lines.append(f"tl.static_assert(made{number}.dtype == tl.{SPELLED[type]}, made{number}.dtype)")
        self.lines.append(f"r{number} = tl.broadcast_to(made{number}, [{self.size}])")
        self.wanted.append((expression, np.broadcast_to(wanted, self.size), type, where, steps))

    def run(self, run: Callable[..., None]) -> list[str]:
        """Every expression that came out otherwise, with an example."""
        types = [type for _, _, type, *_ in self.wanted]
        function = kernel(self.lines, self.inputs, types, self.size)
        outs = [in_memory(np.zeros(self.size, NUMPY[type])) for type in types]
        run(function, (1,), [*(a.copy() for a in self.arrays), *outs])
        wrong = []
        for found, (expression, wanted, type, where, steps) in zip(outs, self.wanted, strict=True):
            bad = differing(found, in_memory(wanted), steps)
            bad &= True if where is None else where
            if bad.any():
                i = int(np.argmax(bad))
                given = ", ".join(
                    f"{n}: {t} = {a[i]}" for (n, t), a in zip(self.inputs.items(), self.arrays, strict=True)
                )
                wrong.append(f"{expression} = {found[i]} instead of {wanted[i]} ({type}); {given}; {bad.sum()} wrong")
        return wrong


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Overflow and NaN are among the values."""
    with np.errstate(all="ignore"):
        yield


@pytest.fixture
def target(request: pytest.FixtureRequest) -> str:
    """The name of the target that ``run_on_target`` runs on."""
    return str(request.node.callspec.params["run_on_target"])


@pytest.fixture
def quotient_steps(target: str) -> int:
    """How far x / y of f32 may be from the rounded quotient: div.full.f32 has an error of at most 2 units in the last
    place (PTX ISA, "div"), and so has what is written in its place where elements share a divisor; code for CPUs rounds
    once.
    """
    return 2 if target in ("cuda", "simulated") else 0


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """This module: test files cannot import each other."""
    return sys.modules[__name__]
