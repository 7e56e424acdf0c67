"""The PTX that the code generator writes as inline assembly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from . import copies, matrices, synchronisation, tma, wgmma
from .parse import Step, split_commas
from .statements import Assembly, Statement, active_lanes, split_statements
from .tensorcore import multiply
from .values import LANES, Array, Operand, SimulationError, held_operand, operand, split_type, unsigned
from .warp import CLUSTER_SHIFT, Lanes, Warp

if TYPE_CHECKING:
    from .barriers import Wait
    from .memory import SimulatedMemory

_ATTRIBUTE = r"(?:convergent|nounwind|willreturn|memory\(none\)|#\d+)"
_ASM = re.compile(rf'(?:tail )?call (.+?) asm (?:sideeffect )?"(.*?)", "(.*?)"\((.*?)\)(?: {_ATTRIBUTE})*$')
_MAKERS = {
    **tma.MAKERS, **copies.MAKERS, **wgmma.MAKERS, **matrices.MAKERS, **synchronisation.MAKERS
}  # fmt: skip
_MEMORY = re.compile(
    r"(?:@\$(\d+) )?(ld|st)(?:\.volatile)?\.(global|shared(?:::cta|::cluster)?)(?:\.[\w:]+)*?(\.v\d)?\.b(\d+) "
)
_ATOM = re.compile(r"(?:@\$(\d+) )?atom\.global\.(\w+)\.(\w+)\.([\w.]+)\.(\w+) ")
_RED = re.compile(
    r"(?:@\$(\d+) )?red\.relaxed\.\w+\.(shared|global)\.(\w+(?:\.noftz)?)(?:\.v\d)?\.([bfsu]f?\d+)(?:x2)? "
)
_MMA = re.compile(r"mma\.sync\.aligned\.(m\d+n8k\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+) ")


def parse_assembly(name: str, body: str) -> list[Step]:
    """The steps of one inline assembly call."""
    match = _ASM.match(body)
    if match is None:
        raise SimulationError(f"cannot read the assembly {body!r}")
    returns, text, constraints, arguments = match.groups()
    outputs = sum(c.startswith("=") for c in constraints.split(","))
    compute = _compute(text, outputs, [_typed(part) for part in split_commas(arguments)])
    types = [split_type(type)[1] for type in split_commas(returns.strip("{}"))] if outputs else []
    if compute is None:
        return _statements(name, text, constraints.split(","), split_commas(arguments))

    def step(warp: Warp) -> None:
        # A register has the type of the result, whatever the instruction took it for.
        made = [x.view(type) for x, type in zip(compute(warp), types, strict=True)]
        if outputs:
            warp.env[name] = made[0] if outputs == 1 else tuple(made)

    return [step]


def _statements(name: str, text: str, constraints: list[str], arguments: list[str]) -> list[Step]:
    """One step for each instruction, and one that takes the results out of their registers."""
    outputs = [number for number, c in enumerate(constraints) if c.startswith("=")]
    inputs = [c for c in constraints if not c.startswith(("=", "~"))]
    tied = {int(c): place for place, c in enumerate(inputs) if c.isdecimal()}
    operands = [held_operand(*argument.rsplit(" ", 1)) for argument in arguments]
    assembly = Assembly(len(outputs), operands, tied)
    statements = _guarded(split_statements(text), text)
    _check_loop(statements, text)
    steps = [_statement(s, assembly) for s in statements if s.opcode != "bra"]
    if not outputs:
        return steps

    # What no instruction writes keeps the value of the input that shares its register.
    results = [(f"${number}", assembly.held(f"${number}")) for number in outputs]

    def finish(warp: Warp) -> None:
        written = warp.registers
        made = [written.pop(register) if register in written else keep(warp) for register, keep in results]
        warp.env[name] = made[0] if len(made) == 1 else tuple(made)  # type: ignore[arg-type]

    return [*steps, finish]


def _guarded(statements: list[Statement], text: str) -> list[Statement]:
    """A branch at the beginning that leads to the end is a predicate of all that it leads around."""
    first, *others = statements
    if first.opcode != "bra" or not text.endswith(f"\\0A{first.operands[0]}:\\0A}}"):
        return statements
    if any(s.predicate is not None or s.opcode == "bra" for s in others):
        raise SimulationError(f"the simulator knows no predicates behind a branch: {text!r}")
    return [Statement(s.opcode, s.operands, first.predicate, not first.negated) for s in others]


def _check_loop(statements: list[Statement], text: str) -> None:
    """Branches are understood in the loop around a wait alone, and such a wait in its loop."""
    branches = any(s.opcode == "bra" for s in statements)
    if branches != any("_wait." in s.opcode and s.opcode.startswith("mbarrier") for s in statements):
        raise SimulationError(f"the simulator knows the loop that waits for an mbarrier, not {text!r}")


def _statement(statement: Statement, assembly: Assembly) -> Step:
    maker = next((maker for start, maker in _MAKERS.items() if statement.opcode.startswith(start)), None)
    if maker is None:
        raise SimulationError(f"the simulator does not know the instruction {statement.opcode!r}")
    run, lanes = maker(statement, assembly), active_lanes(statement, assembly)

    def step(warp: Warp) -> Wait | None:
        here = lanes(warp)
        return run(warp, here) if here.any() else None

    return step


def _typed(text: str) -> tuple[str, Operand]:
    type, value = text.rsplit(" ", 1)
    return type, operand(type, value)


Compute = Callable[["Warp"], Sequence[Array]]
Inputs = list[tuple[str, Operand]]


def _compute(text: str, outputs: int, inputs: Inputs) -> Compute | None:
    """Instructions that stand alone and are computed on the spot; None for others."""
    if match := _MEMORY.match(text):
        return _memory(match, outputs, inputs)
    if match := _ATOM.match(text):
        return _atomic(match, inputs)
    if match := _RED.match(text):
        return _reduction(match, inputs)
    if match := _MMA.match(text):
        shape, kind = match[1], match[3]
        return lambda warp: _multiply(warp, shape, kind, inputs)
    for pattern, convert in _CONVERSIONS.items():
        if text.startswith(pattern):
            return _applied(convert, inputs)
    return None


def _multiply(warp: Warp, shape: str, kind: str, inputs: Inputs) -> Sequence[Array]:
    warp.require_all_lanes("mma.sync")
    return multiply(shape, kind, [x(warp.env) for _, x in inputs])


def _applied(convert: Callable[..., Array], inputs: Inputs) -> Compute:
    return lambda warp: [convert(*(x(warp.env) for _, x in inputs))]


def _predicate(match: re.Match[str], outputs: int, inputs: Inputs) -> Callable[[Warp], Lanes]:
    if match[1] is None:
        return lambda warp: warp.active
    predicate = inputs[int(match[1]) - outputs][1]
    return lambda warp: warp.active & predicate(warp.env).astype(np.bool_)


def _memory(match: re.Match[str], outputs: int, inputs: Inputs) -> Compute:
    active = _predicate(match, outputs, inputs)
    count = int(match[4][2:]) if match[4] else 1
    size = int(match[5]) // 8 * count
    address = inputs[0][1]
    space = match[3]

    def load(warp: Warp) -> Sequence[Array]:
        mask = active(warp)
        raw = np.zeros((LANES, size), np.uint8)
        for memory, where, lanes in _memories(warp, space, address(warp.env), mask):
            raw |= memory.load(where, np.dtype(np.uint8), size, size, lanes, warp.agents)
        words = raw.reshape(LANES, count, -1)
        made = []
        for i in range(count):
            preset = inputs[-count + i][1](warp.env) if match[1] is not None else None
            loaded = _widen(words[:, i], preset)
            made.append(loaded if preset is None else np.where(mask, loaded, preset))
        return made

    def store(warp: Warp) -> Sequence[Array]:
        parts = [x(warp.env) for _, x in inputs[1 : 1 + count]]
        raw = [np.ascontiguousarray(p).view(np.uint8).reshape(32, -1)[:, : size // count] for p in parts]
        for memory, where, lanes in _memories(warp, space, address(warp.env), active(warp)):
            memory.store(where, np.concatenate(raw, axis=1), size, lanes, warp.agents)
        return []

    return load if match[2] == "ld" else store


def _memories(warp: Warp, space: str, addresses: Array, lanes: Lanes) -> Iterator[tuple[SimulatedMemory, Array, Lanes]]:
    """The memories that ``lanes`` access, where, and which lanes: there may be one in each program of a cluster."""
    if space != "shared::cluster":
        yield warp.memory if space == "global" else warp.shared, addresses, lanes
        return
    for first in np.unique(addresses[lanes] >> CLUSTER_SHIFT):
        here = lanes & (addresses >> CLUSTER_SHIFT == first)
        program, _ = warp.program.reach(int(first) << CLUSTER_SHIFT)
        warp.visit(program, here)
        yield program.shared, addresses - (int(first) << CLUSTER_SHIFT), here


def _widen(raw: Array, preset: Array | None) -> Array:
    """Loaded bytes as a register of the output's type."""
    size = raw.shape[1]
    dtype = preset.dtype if preset is not None else np.dtype(f"i{max(2, size)}")
    if size < dtype.itemsize:
        raw = np.concatenate([raw, np.zeros((32, dtype.itemsize - size), np.uint8)], axis=1)
    return np.ascontiguousarray(raw).view(dtype)[:, 0]


def _where(condition: Array, x: Array, y: Array) -> Array:
    chosen: Array = np.where(condition, x, y)
    return chosen


_ATOMICS: dict[str, Callable[..., Array]] = {
    "add": lambda old, x: old + x,
    "add.noftz": lambda old, x: old + x,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "exch": lambda old, x: x,
    "min": lambda old, x: _where(x < old, x, old),
    "max": lambda old, x: _where(x > old, x, old),
    "cas": lambda old, x, y: _where(old == x, y, old),
}
_ATOMIC_TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}


def _atomic(match: re.Match[str], inputs: Inputs) -> Compute:
    active = _predicate(match, 1, inputs)
    kind = match[5]
    dtype = _atomic_type(kind)
    operation = match[4]

    def atom(warp: Warp) -> Sequence[Array]:
        where, mask = inputs[0][1](warp.env), active(warp)
        values = [x(warp.env) for _, x in inputs[1:3]]
        made = np.zeros(LANES, dtype)
        if mask.any():
            operands = [v.view(dtype)[mask] for v in values if v.dtype.itemsize == dtype.itemsize]
            made[mask] = warp.memory.change(
                where[mask].astype(np.int64), dtype, _ATOMICS[operation], operands, warp.agents[mask]
            )
        return [made.view(values[0].dtype)]

    return atom


def _reduction(match: re.Match[str], inputs: Inputs) -> Compute:
    """An atomic operation on neighbours in memory whose old values nobody gets; each element's is a step of its own."""
    active = _predicate(match, 0, inputs)
    operands = [x for type, x in inputs[1:] if type != "i1"]
    dtype, operation = _atomic_type(match[4]), match[3]

    def red(warp: Warp) -> Sequence[Array]:
        where = inputs[0][1](warp.env)
        words = [np.ascontiguousarray(x(warp.env)).reshape(LANES, 1).view(dtype) for x in operands]
        values = np.concatenate(words, axis=1)
        memory = warp.memory if match[2] == "global" else warp.shared
        lanes = active(warp)
        first, size = where[lanes].astype(np.int64), values.shape[1] * dtype.itemsize
        if (first % size).any():
            raise SimulationError(f"red of {size} bytes at the address {int(first[first % size != 0][0]):#x}")
        if len(first):
            places = (first[:, None] + np.arange(0, size, dtype.itemsize)).reshape(-1)
            agents = np.repeat(warp.agents[lanes], values.shape[1])
            memory.change(places, dtype, _ATOMICS[operation], [values[lanes].reshape(-1)], agents)
        return []

    return red


def _atomic_type(kind: str) -> np.dtype[Any]:
    return np.dtype(_ATOMIC_TYPES.get(kind) or f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")


# Conversions -------------------------------------------------------------------------------------------------


def _round_to_tf32(x: Array) -> Array:
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.int32)


def _towards_zero(x: Array, dtype: np.dtype[np.generic]) -> Array:
    """NaN loses its payload, which NumPy would cut off."""
    near = np.where(np.isnan(x), dtype.type(np.nan), x.astype(dtype))
    too_far = np.abs(near.astype(np.float64)) > np.abs(x.astype(np.float64))
    return np.where(too_far, np.nextafter(near, dtype.type(0)), near).astype(dtype)


def _integers_towards_zero(x: Array) -> Array:
    """Integers as f32 by their upper 24 bits."""
    made = []
    for number in x.tolist():
        short = max(0, abs(number).bit_length() - 24)
        made.append(float(abs(number) >> short << short) * (-1 if number < 0 else 1))
    return np.array(made, np.float32)


def _pair(low: Array, high: Array, dtype: type[np.generic]) -> Array:
    raw = np.stack([low.astype(dtype).view(np.uint8), high.astype(dtype).view(np.uint8)], axis=1)
    return np.ascontiguousarray(raw).view(np.int16)[:, 0]


def _eight_bit_to_half(x: Array) -> Array:
    raw = np.ascontiguousarray(x).view(np.uint8).reshape(32, 2)
    halves = np.ascontiguousarray(raw).view(ml_dtypes.float8_e4m3fn).astype(np.float16)
    return np.ascontiguousarray(halves).view(np.int32)[:, 0]


def _saturated(x: Array, dtype: type[np.generic]) -> Array:
    limit = 448.0 if dtype is _E4M3 else 57344.0  # the largest finite values
    return np.clip(x, -limit, limit)


_E4M3, _E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def _funnel_shift(low: Array, high: Array, by: Array) -> Array:
    """``shf.l.wrap.b32``: the upper half of ``high:low``, shifted left."""
    whole = unsigned(high).astype(np.uint64) << np.uint64(32) | unsigned(low).astype(np.uint64)
    shifted = whole << (unsigned(by).astype(np.uint64) & np.uint64(31))
    return (shifted >> np.uint64(32)).astype(np.uint32).view(np.int32)


def _divided(x: Array, y: Array, remainder: bool = False) -> Array:
    """As GPUs do it: all bits are set where y is 0, and the minimum / -1 wraps."""
    wide, divisor = x.astype(np.int64), np.where(y == 0, 1, y).astype(np.int64)
    magnitude = np.abs(wide) // np.abs(divisor)
    quotient = np.where((wide < 0) != (divisor < 0), -magnitude, magnitude)
    made = wide - quotient * divisor if remainder else quotient
    result: Array = np.where(y == 0, -1, made).astype(np.uint64).astype(np.uint32).view(np.int32)
    return result


_CONVERSIONS: dict[str, Callable[..., Array]] = {
    "div.s32": _divided,
    "rem.s32": partial(_divided, remainder=True),
    "div.u32": lambda x, y: _divided(unsigned(x), unsigned(y)),
    "rem.u32": lambda x, y: _divided(unsigned(x), unsigned(y), remainder=True),
    "shf.l.wrap.b32": _funnel_shift,
    "xor.b32": lambda x, y: x ^ y,
    "mul.f32": lambda x, y: x * y,
    "cvt.rna.tf32.f32": _round_to_tf32,
    "cvt.rz.f16.f32": lambda x: _towards_zero(x, np.dtype(np.float16)).view(np.int16),
    "cvt.rz.f32.s32": lambda x: _integers_towards_zero(x),
    "cvt.rz.f32.u32": lambda x: _integers_towards_zero(unsigned(x)),
    "cvt.rz.f32.s64": lambda x: _integers_towards_zero(x),
    "cvt.rz.f32.u64": lambda x: _integers_towards_zero(unsigned(x)),
    "cvt.rz.f32.f64": lambda x: _towards_zero(x, np.dtype(np.float32)),
    "cvt.rn.f16x2.e4m3x2": _eight_bit_to_half,
    "cvt.rn.satfinite.e4m3x2.f32": lambda hi, lo: _pair(_saturated(lo, _E4M3), _saturated(hi, _E4M3), _E4M3),
    "cvt.rn.satfinite.e5m2x2.f32": lambda hi, lo: _pair(_saturated(lo, _E5M2), _saturated(hi, _E5M2), _E5M2),
}
