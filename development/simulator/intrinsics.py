"""Calls of LLVM and NVVM intrinsics."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from deuteron.compiler.ir.types import BF16, F16, F32, F64
from deuteron.compiler.targets.interpreter.numbers import fused

from .parse import Step, split_commas
from .values import LANES, Array, SimulationError, operand, split_type, unsigned

if TYPE_CHECKING:
    from .barriers import Wait
    from .warp import Warp

_CALL = re.compile(r"(?:tail )?call (?:[\w]+ )*?(?:range\([^)]*\) )?([\w<> ]+|ptr.*?|\{.*?\}) @([\w.]+)\((.*)\)")


def _round_even(x: Array) -> Array:
    return np.rint(x)


def _fma_down(x: Array, y: Array, z: Array) -> Array:
    """Of f32, rounded down; the sum in f64 is exact but where the parts are 2**29 times apart."""
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)
        nearest = exact.astype(np.float32)
        return np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest)


def _fma(x: Array, y: Array, z: Array) -> Array:
    return fused(x, y, z, _FLOATS[x.dtype])


def _pick_bytes(low: Array, high: Array, places: Array) -> Array:
    """PTX's prmt.b32 in its default mode: four bits say which of eight bytes each byte is (the fourth, for signs, is
    not known here)."""
    if np.any(places & 0x8888):
        raise SimulationError("prmt copies signs, which the simulator does not know")
    pool = np.stack([low, high], axis=-1).astype(np.int32).view(np.uint8)
    picks = places[:, None] >> np.arange(0, 16, 4) & 7
    return np.ascontiguousarray(np.take_along_axis(pool, picks, axis=1)).view(np.int32)[:, 0]


def _reduced(x: Array) -> tuple[Array, Array]:
    """(q, r) with x = q pi/2 + r modulo 2 pi and r of magnitude pi/4 or less, as integers and floats as wide as ``x``,
    by way of sine and cosine in 80 bits."""
    with np.errstate(all="ignore"):
        s, c = (function(x.astype(np.longdouble)) for function in (np.sin, np.cos))
        flat = np.abs(s) <= np.abs(c)
        quadrant = np.where(flat, np.where(c < 0, 2, 0), np.where(s < 0, 3, 1))
        rest = np.where(flat, np.arctan(s / c), np.arctan(-c / s))
    return quadrant.astype(f"i{x.itemsize}"), rest.astype(x.dtype)


def _exp2(x: Array) -> Array:
    """Rounded once: what NumPy makes of f32 differs from processor to processor."""
    with np.errstate(all="ignore"):
        return np.exp2(x.astype(np.float64)).astype(np.float32)


def _log2(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.log2(x.astype(np.float64)).astype(np.float32)


def _log2_flushed(x: Array) -> Array:
    return _log2(np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x))


def _exp2_flushed(x: Array) -> Array:
    made = _exp2(x)
    return np.where(made < np.finfo(np.float32).tiny, np.float32(0), made)


def _reciprocal(x: Array) -> Array:
    """Rounded once, subnormal numbers being zero."""
    with np.errstate(all="ignore"):
        tiny = np.finfo(np.float32).tiny
        made = 1 / np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x)
        return np.where(np.abs(made) < tiny, np.copysign(np.float32(0), x), made)


def _least(propagate: bool, x: Array, y: Array) -> Array:
    """PTX's min: -0 is below +0, and a NaN that is the result is the canonical one, whatever the order of the two."""
    found = np.minimum(x, y) if propagate else np.fmin(x, y)
    found = np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), found)
    return np.where(found == found, found, found.dtype.type(np.nan))


def _greatest(propagate: bool, x: Array, y: Array) -> Array:
    """PTX's max."""
    found = np.maximum(x, y) if propagate else np.fmax(x, y)
    found = np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), found)
    return np.where(found == found, found, found.dtype.type(np.nan))


_FLOATS = {
    np.dtype(np.float16): F16,
    np.dtype(ml_dtypes.bfloat16): BF16,
    np.dtype(np.float32): F32,
    np.dtype(np.float64): F64,
}
_FUNCTIONS: dict[str, Callable[..., Array | tuple[Array, ...]]] = {
    "llvm.fabs": np.abs,
    "llvm.floor": np.floor,
    "llvm.ceil": np.ceil,
    "llvm.trunc": np.trunc,
    "llvm.roundeven": _round_even,
    "llvm.rint": _round_even,
    "llvm.sqrt": np.sqrt,
    "llvm.minnum": partial(_least, False),
    "llvm.maxnum": partial(_greatest, False),
    "llvm.minimum": partial(_least, True),
    "llvm.maximum": partial(_greatest, True),
    "llvm.smin": np.minimum,
    "llvm.smax": np.maximum,
    "llvm.umin": lambda x, y: np.minimum(unsigned(x), unsigned(y)).view(x.dtype),
    "llvm.umax": lambda x, y: np.maximum(unsigned(x), unsigned(y)).view(x.dtype),
    "llvm.abs": lambda x, _: np.abs(x),
    "llvm.fma": _fma,
    "llvm.copysign": np.copysign,
    "llvm.nvvm.fma.rm.f": _fma_down,
    "llvm.nvvm.prmt": _pick_bytes,
    "llvm.nvvm.div.full": lambda x, y: x / y,
    "llvm.nvvm.ex2.approx.f": _exp2,
    "llvm.nvvm.ex2.approx.ftz.f": _exp2_flushed,
    "llvm.nvvm.lg2.approx.f": _log2,
    "llvm.nvvm.lg2.approx.ftz.f": _log2_flushed,
    "llvm.nvvm.rcp.approx.ftz.f": _reciprocal,
    "llvm.nvvm.sqrt.approx.f": np.sqrt,
    "llvm.nvvm.sqrt.rn.f": np.sqrt,
    "llvm.nvvm.rsqrt.approx.f": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32),
    # Functions that the templates of compiler/llvm define in the module; their own tests measure them.
    "deuteron_reduce_f32": _reduced,
    "deuteron_reduce_f64": _reduced,
    "deuteron_fmod_f32": np.fmod,
    "deuteron_fmod_f64": np.fmod,
}
_REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "add": lambda x: np.add.reduce(x, dtype=x.dtype),
    "and": np.bitwise_and.reduce,
    "or": np.bitwise_or.reduce,
    "xor": np.bitwise_xor.reduce,
    "min": np.minimum.reduce,
    "max": np.maximum.reduce,
    "umin": lambda x: np.minimum.reduce(unsigned(x)).astype(x.dtype),
    "umax": lambda x: np.maximum.reduce(unsigned(x)).astype(x.dtype),
}


def _all_lanes(reduce: Callable[[Array], Array], x: Array, _: Array) -> Array:
    return np.full(LANES, reduce(x))


# Those in which lanes exchange values.
_SHUFFLES: dict[str, Callable[..., Array]] = {
    "llvm.nvvm.shfl.sync.bfly": lambda _, x, lane, __: x[np.arange(32) ^ lane],
    "llvm.nvvm.shfl.sync.idx": lambda _, x, lane, __: x[lane & 31],
    **{f"llvm.nvvm.redux.sync.{kind}": partial(_all_lanes, reduce) for kind, reduce in _REDUCTIONS.items()},
}
_NOTHING = ("llvm.assume",)


def parse_call(name: str, body: str) -> Step:
    """The step for a call."""
    match = _CALL.match(body)
    if match is None:
        raise SimulationError(f"cannot read the call {body!r}")
    returns, callee = match[1].split()[-1] if "<" not in match[1] else match[1], match[2]
    if callee in _NOTHING:
        return lambda warp: None
    if callee.startswith("llvm.nvvm.read.ptx.sreg."):
        return _special_register(name, callee.removeprefix("llvm.nvvm.read.ptx.sreg."))
    inputs = [operand(*part.rsplit(" ", 1)) for part in split_commas(match[3])]
    # Every barrier needs whole warps here, as the aligned ones do.
    if order := _SYNCHRONISATION.get(callee.removeprefix("llvm.nvvm.").replace(".aligned", "")):
        return _synchronisation(name, order, inputs)
    together = callee in _SHUFFLES or callee.rsplit(".", 1)[0] in _SHUFFLES
    known = {**_FUNCTIONS, **_SHUFFLES}
    function = known.get(callee.rsplit(".", 1)[0]) or known.get(callee)
    if function is None:
        raise SimulationError(f"the simulator does not know @{callee}")
    dtype = None if returns == "}" else split_type(returns)[1]

    def step(warp: Warp) -> None:
        if together:
            warp.require_all_lanes("a shuffle")
        made = function(*(x(warp.env) for x in inputs))
        warp.env[name] = made if isinstance(made, tuple) else made.astype(dtype)

    return step


def _number(values: Array) -> int:
    return int(values[0])


def elect(warp: Warp) -> tuple[Array, Array]:
    """elect.sync: the lowest lane, and whether a lane is that one."""
    leader = int(np.flatnonzero(warp.active)[0])
    return np.full(LANES, leader, np.int32), np.arange(LANES) == leader


def synchronise_warp(warp: Warp) -> None:
    """bar.warp.sync of the lanes that are here."""
    warp.clocks.join(warp.agents[warp.active])


# What they take after the warp, and what the warp waits for or gets.
_SYNCHRONISATION: dict[str, Callable[..., Wait | tuple[Array, ...] | None]] = {
    "barrier.cta.sync.all": lambda warp, number: warp.program.barriers.arrive(warp, number, None),
    "barrier.cta.sync.count": lambda warp, *two: warp.program.barriers.arrive(warp, *two),
    "barrier.cta.arrive.count": lambda warp, *two: warp.program.barriers.arrive(warp, *two, waits=False),
    "bar.warp.sync": lambda warp, mask: synchronise_warp(warp),
    "elect.sync": lambda warp, mask: elect(warp),
    "barrier.cluster.arrive": lambda warp: warp.program.cluster.barrier.arrive(warp),
    "barrier.cluster.wait": lambda warp: warp.program.cluster.barrier.wait(warp),
}


def _synchronisation(
    name: str, run: Callable[..., Wait | tuple[Array, ...] | None], inputs: list[Callable[..., Array]]
) -> Step:
    def step(warp: Warp) -> Wait | None:
        made = run(warp, *(_number(x(warp.env)) for x in inputs))
        if isinstance(made, tuple):
            warp.env[name] = made
            return None
        return made

    return step


def _program_id(axis: int) -> Callable[[Warp], int]:
    return lambda warp: warp.program.ids[axis]


def _grid_size(axis: int) -> Callable[[Warp], int]:
    return lambda warp: warp.program.grid[axis]


_REGISTERS: dict[str, Callable[[Warp], int]] = {
    "ntid.x": lambda warp: warp.program.num_warps * LANES,
    "cluster.ctarank": lambda warp: warp.program.rank,
    "cluster.ctaid.x": lambda warp: warp.program.rank,
    "cluster.nctarank": lambda warp: len(warp.program.cluster.programs),
    "cluster.nctaid.x": lambda warp: len(warp.program.cluster.programs),
    "clusterid.x": lambda warp: warp.program.ids[0] // len(warp.program.cluster.programs),
    "nclusterid.x": lambda warp: warp.program.grid[0] // len(warp.program.cluster.programs),
    "warpid": lambda warp: warp.number,
    **{f"ctaid.{axis}": _program_id(place) for place, axis in enumerate("xyz")},
    **{f"nctaid.{axis}": _grid_size(place) for place, axis in enumerate("xyz")},
}


def _special_register(name: str, register: str) -> Step:
    if register in ("tid.x", "laneid"):
        lanes = np.arange(LANES, dtype=np.int32)
        return lambda warp: warp.env.__setitem__(name, warp.threads if register == "tid.x" else lanes)
    if register not in _REGISTERS:
        raise SimulationError(f"the simulator does not know the register {register}")
    read = _REGISTERS[register]
    return lambda warp: warp.env.__setitem__(name, np.full(LANES, read(warp), np.int32))
