"""Calls of LLVM and NVVM intrinsics."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from deuteron.compiler.ir.types import BF16, F16, F32, F64
from deuteron.compiler.targets.interpreter.numbers import fused

from .parse import Step, split_commas
from .values import Array, SimulationError, operand, split_type, unsigned

if TYPE_CHECKING:
    from .machine import Warp

_CALL = re.compile(r"(?:tail )?call (?:[\w]+ )*?(?:range\([^)]*\) )?([\w<> ]+|ptr.*?) @([\w.]+)\((.*)\)")
_AXES = "xyz"


def _round_even(x: Array) -> Array:
    return np.rint(x)


def _fma(x: Array, y: Array, z: Array) -> Array:
    return fused(x, y, z, _FLOATS[x.dtype])


_FLOATS = {
    np.dtype(np.float16): F16,
    np.dtype(ml_dtypes.bfloat16): BF16,
    np.dtype(np.float32): F32,
    np.dtype(np.float64): F64,
}
_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "llvm.fabs": np.abs,
    "llvm.floor": np.floor,
    "llvm.ceil": np.ceil,
    "llvm.trunc": np.trunc,
    "llvm.roundeven": _round_even,
    "llvm.rint": _round_even,
    "llvm.sqrt": np.sqrt,
    "llvm.minnum": np.fmin,
    "llvm.maxnum": np.fmax,
    "llvm.minimum": np.minimum,
    "llvm.maximum": np.maximum,
    "llvm.smin": np.minimum,
    "llvm.smax": np.maximum,
    "llvm.umin": lambda x, y: np.minimum(unsigned(x), unsigned(y)).view(x.dtype),
    "llvm.umax": lambda x, y: np.maximum(unsigned(x), unsigned(y)).view(x.dtype),
    "llvm.abs": lambda x, _: np.abs(x),
    "llvm.fma": _fma,
    "llvm.copysign": np.copysign,
    "llvm.nvvm.div.full": lambda x, y: x / y,
    "llvm.nvvm.ex2.approx.f": np.exp2,
    "llvm.nvvm.lg2.approx.f": np.log2,
    "llvm.nvvm.sqrt.approx.f": np.sqrt,
    "llvm.nvvm.sqrt.rn.f": np.sqrt,
    "llvm.nvvm.rsqrt.approx.f": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32),
    # Functions that the templates of compiler/llvm define in the module; their own tests measure them.
    "deuteron_sin_f32": lambda x: np.sin(x.astype(np.float64)),
    "deuteron_cos_f32": lambda x: np.cos(x.astype(np.float64)),
    "deuteron_sin_f64": np.sin,
    "deuteron_cos_f64": np.cos,
    "deuteron_fmod_f32": np.fmod,
    "deuteron_fmod_f64": np.fmod,
    "llvm.nvvm.shfl.sync.bfly": lambda _, x, lane, __: x[np.arange(32) ^ lane],
    "llvm.nvvm.shfl.sync.idx": lambda _, x, lane, __: x[lane & 31],
}
_BARRIERS = ("llvm.nvvm.barrier.cta.sync.aligned.all",)
_NOTHING = ("llvm.assume",)


def parse_call(name: str, body: str) -> Step | None:
    """The step for a call; None for a barrier."""
    match = _CALL.match(body)
    if match is None:
        raise SimulationError(f"cannot read the call {body!r}")
    returns, callee = match[1].split()[-1] if "<" not in match[1] else match[1], match[2]
    if callee in _BARRIERS:
        return None
    if callee in _NOTHING:
        return lambda warp: None
    if callee.startswith("llvm.nvvm.read.ptx.sreg."):
        return _special_register(name, callee.removeprefix("llvm.nvvm.read.ptx.sreg."))
    function = _FUNCTIONS.get(callee) or _FUNCTIONS.get(callee.rsplit(".", 1)[0])
    if function is None:
        raise SimulationError(f"the simulator does not know @{callee}")
    inputs = [operand(*part.rsplit(" ", 1)) for part in split_commas(match[3])]
    dtype = split_type(returns)[1]

    def step(warp: Warp) -> None:
        warp.env[name] = function(*(x(warp.env) for x in inputs)).astype(dtype)

    return step


def _special_register(name: str, register: str) -> Step:
    kind, axis = register.split(".")
    place = _AXES.index(axis)

    def step(warp: Warp) -> None:
        if kind == "tid":
            warp.env[name] = warp.threads
        else:
            number = (warp.program if kind == "ctaid" else warp.grid)[place]
            warp.env[name] = np.full(len(warp.threads), number, np.int32)

    return step
