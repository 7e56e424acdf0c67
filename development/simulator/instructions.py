"""LLVM instructions on arrays."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from deuteron.compiler.targets.interpreter.numbers import limited
from deuteron.compiler.tile.formats import integer_limits

from .assembly import parse_assembly
from .intrinsics import parse_call
from .parse import Step, split_commas
from .values import LANES, Array, Held, SimulationError, operand, split_type, unsigned

if TYPE_CHECKING:
    from .warp import Warp

_FLAGS = re.compile(r"\b(nuw|nsw|exact|disjoint|contract|fast|nnan|ninf|nsz|arcp|afn|reassoc|inbounds|volatile) ")
_TYPE = re.compile(r"(ptr(?: addrspace\(\d\))?|<[^>]+>|\{[^}]+\}|\w+) (.+)")


def typed(text: str) -> tuple[str, str]:
    """``float %x`` as (type, value)."""
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        raise SimulationError(f"cannot read the operand {text!r}")
    return match[1], match[2].strip()


def parse_instruction(name: str, body: str) -> list[Step]:
    """The steps of ``name = body``."""
    if "asm " in body.split('"')[0]:
        return parse_assembly(name, body)
    if body.startswith(("call ", "tail call ")):
        return [parse_call(name, body)]
    opcode, rest = _FLAGS.sub("", body).split(" ", 1)
    maker = _MAKERS.get(opcode)
    if maker is None:
        raise SimulationError(f"the simulator does not know {body!r}")
    compute = maker(opcode, rest)
    if not name:
        return [lambda warp: _ignore(compute(warp))]

    def step(warp: Warp) -> None:
        warp.env[name] = compute(warp)

    return [step]


def _ignore(value: object) -> None:
    del value


Compute = Callable[["Warp"], Held]


# Arithmetic --------------------------------------------------------------------------------------------------


def _defined(x: Array, y: Array, overflow: bool) -> None:
    """Division by 0, and of the minimum by -1, is undefined in LLVM, whatever becomes of the result."""
    if np.any(y == 0) or (overflow and np.any((y == -1) & (x == np.iinfo(x.dtype).min))):
        raise SimulationError("an integer division is undefined: by 0, or of the minimum by -1")


def _signed_division(x: Array, y: Array) -> Array:
    _defined(x, y, overflow=True)
    quotient: Array = x // y
    towards_zero: Array = quotient + ((quotient * y != x) & ((x < 0) != (y < 0)))
    return towards_zero.astype(x.dtype)


def _unsigned_division(x: Array, y: Array) -> Array:
    _defined(x, y, overflow=False)
    quotient: Array = unsigned(x) // unsigned(y)
    return quotient.view(x.dtype)


def _shifted(
    shift: Callable[[Array, Array], Array], beyond: Callable[[Array], Array]
) -> Callable[[Array, Array], Array]:
    """A shift, with what is left of ``x`` ``beyond`` its width. That is poison in LLVM; PTX, whose instructions these
    become, shifts everything out (PTX ISA, "shl" and "shr")."""

    def shifted(x: Array, y: Array) -> Array:
        width = 8 * y.dtype.itemsize
        result: Array = np.where(unsigned(y) < width, shift(x, y & (width - 1)), beyond(x))
        return result

    return shifted


def _logically_right(x: Array, y: Array) -> Array:
    shifted: Array = (unsigned(x) >> unsigned(y)).view(x.dtype)
    return shifted


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "sdiv": _signed_division,
    "udiv": _unsigned_division,
    "srem": lambda x, y: x - _signed_division(x, y) * y,
    "urem": lambda x, y: x - _unsigned_division(x, y) * y,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl": _shifted(operator.lshift, np.zeros_like),
    "ashr": _shifted(operator.rshift, lambda x: x >> (8 * x.dtype.itemsize - 1)),
    "lshr": _shifted(_logically_right, np.zeros_like),
    "fadd": lambda x, y: x + y,
    "fsub": lambda x, y: x - y,
    "fmul": lambda x, y: x * y,
    "fdiv": lambda x, y: x / y,
}


def _binary(opcode: str, rest: str) -> Compute:
    first, second = split_commas(rest)
    type, left = typed(first)
    x, y, compute = operand(type, left), operand(type, second), _BINARY[opcode]
    dtype = split_type(type)[1]
    if type == "i1":  # in bytes, of which the last bit stays
        return lambda warp: (compute(x(warp.env).view(np.int8), y(warp.env).view(np.int8)) & 1).astype(dtype)
    return lambda warp: compute(x(warp.env), y(warp.env)).astype(dtype, copy=False)


def _fneg(opcode: str, rest: str) -> Compute:
    x = operand(*typed(rest))
    return lambda warp: -x(warp.env)


_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compare(opcode: str, rest: str) -> Compute:
    predicate, rest = rest.split(" ", 1)
    first, second = split_commas(rest)
    type, left = typed(first)
    x, y = operand(type, left), operand(type, second)
    if opcode == "icmp":
        compare = _COMPARISONS[predicate[-2:]]
        if predicate.startswith("u"):
            return lambda warp: compare(unsigned(x(warp.env)), unsigned(y(warp.env)))
        return lambda warp: compare(x(warp.env), y(warp.env))
    return _compare_floats(predicate, x, y)


def _compare_floats(predicate: str, x: Callable[..., Array], y: Callable[..., Array]) -> Compute:
    def unordered(warp: Warp) -> Array:
        return np.isnan(x(warp.env)) | np.isnan(y(warp.env))

    if predicate == "uno":
        return unordered
    if predicate == "ord":
        return lambda warp: ~unordered(warp)
    compare = _COMPARISONS[predicate[1:]]
    if predicate.startswith("o"):
        return lambda warp: compare(x(warp.env), y(warp.env)) & ~unordered(warp)
    return lambda warp: compare(x(warp.env), y(warp.env)) | unordered(warp)


def _select(opcode: str, rest: str) -> Compute:
    condition, yes, no = (operand(*typed(p)) for p in split_commas(rest))
    return lambda warp: np.where(condition(warp.env), yes(warp.env), no(warp.env))


# Conversions -------------------------------------------------------------------------------------------------


def _convert(opcode: str, rest: str) -> Compute:
    source, to = rest.rsplit(" to ", 1)
    type, value = typed(source)
    x = operand(type, value)
    lanes, dtype = split_type(to)
    match opcode:
        case "bitcast":
            return lambda warp: _reinterpret(x(warp.env), lanes, dtype)
        case "zext":
            return lambda warp: _zero_extend(x(warp.env)).astype(dtype)
        case "uitofp":
            return lambda warp: _zero_extend(x(warp.env)).astype(dtype)
        case "fptoui" | "fptosi":
            return lambda warp: _truncated(x(warp.env), dtype, signed=opcode == "fptosi")
        case "trunc" if to == "i1":
            return lambda warp: (x(warp.env) & 1).astype(np.bool_)
        case "sext" if type == "i1":
            return lambda warp: -x(warp.env).astype(dtype)
        case _:
            return lambda warp: x(warp.env).astype(dtype)


def _truncated(x: Array, dtype: np.dtype[np.generic], *, signed: bool) -> Array:
    """By cvt.rzi, which LLVM selects: what is beyond the integers is limited."""
    limits = integer_limits(8 * x.dtype.itemsize, 8 * dtype.itemsize, signed)
    wide = np.dtype(f"{'i' if signed else 'u'}{limits.bits // 8}")
    return limited(x, limits, wide).astype(f"{wide.kind}{dtype.itemsize}").view(dtype)


def _zero_extend(x: Array) -> Array:
    return x if x.dtype == np.bool_ else unsigned(x)


def _reinterpret(x: Array, lanes: int, dtype: np.dtype[np.generic]) -> Array:
    raw = np.ascontiguousarray(x).view(dtype)
    return raw.reshape(len(x), lanes) if lanes else raw.reshape(len(x))


# Memory and vectors ------------------------------------------------------------------------------------------

_ALIGN = re.compile(r"align (\d+)")


def _align(parts: list[str]) -> int:
    match = _ALIGN.search(parts[-1])
    return int(match[1]) if match else 1


def _load(opcode: str, rest: str) -> Compute:
    type, place, *others = split_commas(rest)
    lanes, dtype = split_type(type)
    pointer_type, token = typed(place)
    if pointer_type == "ptr":
        return lambda warp: warp.env[token]  # a variable's value stands under the name of its address
    address, align = operand(pointer_type, token), _align(others)
    is_shared = "addrspace(3)" in pointer_type

    def load(warp: Warp) -> Array:
        where = address(warp.env)
        memory = warp.shared if is_shared else warp.memory
        loaded = memory.load(where, dtype, max(1, lanes), align, warp.active, warp.agents)
        return loaded if lanes else loaded[:, 0]

    return load


def _store(opcode: str, rest: str) -> Compute:
    value, place, *others = split_commas(rest)
    held = operand(*typed(value))
    pointer_type, token = typed(place)
    if pointer_type == "ptr":

        def assign(warp: Warp) -> Array:
            value = held(warp.env)
            warp.env[token] = value
            return value

        return assign
    address, align = operand(pointer_type, token), _align(others)
    is_shared = "addrspace(3)" in pointer_type

    def store(warp: Warp) -> Array:
        where, data = address(warp.env), held(warp.env)
        memory = warp.shared if is_shared else warp.memory
        memory.store(where, data.reshape(len(where), -1), align, warp.active, warp.agents)
        return where

    return store


def _variable(opcode: str, rest: str) -> Compute:
    """A variable of every thread; nothing but loads and stores uses its address."""
    kind = split_type(rest)[1]
    return lambda warp: np.zeros(LANES, kind)


def _element_pointer(opcode: str, rest: str) -> Compute:
    element, base, index = split_commas(rest)
    size = 8 if element.startswith("ptr") else split_type(element)[1].itemsize
    pointer, offset = operand(*typed(base)), operand(*typed(index))
    return lambda warp: pointer(warp.env) + offset(warp.env).astype(np.int64) * size


def _insert(opcode: str, rest: str) -> Compute:
    vector, value, place = (operand(*typed(p)) for p in split_commas(rest))

    def insert(warp: Warp) -> Array:
        made = vector(warp.env).copy()
        made[:, int(place(warp.env)[0])] = value(warp.env)
        return made

    return insert


def _extract(opcode: str, rest: str) -> Compute:
    vector, place = (operand(*typed(p)) for p in split_commas(rest))
    return lambda warp: vector(warp.env)[:, int(place(warp.env)[0])]


def _extract_value(opcode: str, rest: str) -> Compute:
    held, place = split_commas(rest)
    name, index = held.rsplit(" ", 1)[1], int(place)

    def extract(warp: Warp) -> Held:
        struct = warp.env[name]
        if not isinstance(struct, tuple):
            raise SimulationError(f"{name} is no struct")
        return struct[index]

    return extract


_MAKERS: dict[str, Callable[[str, str], Compute]] = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(
        (
            "trunc", "zext", "sext", "fptrunc", "fpext", "fptosi", "fptoui", "sitofp", "uitofp",
            "bitcast", "inttoptr", "ptrtoint", "addrspacecast",
        ),
        _convert,
    ),
    "fneg": _fneg,
    "icmp": _compare,
    "fcmp": _compare,
    "select": _select,
    "alloca": _variable,
    "load": _load,
    "store": _store,
    "getelementptr": _element_pointer,
    "insertelement": _insert,
    "extractelement": _extract,
    "extractvalue": _extract_value,
}  # fmt: skip
