"""Single operations by the interpreter: whole tiles come out of memory and go back to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from deuteron.compiler.ir import Builder, Function, Pointer, Tile, Value, verify
from deuteron.compiler.ir import types as t
from deuteron.compiler.targets import interpreter
from deuteron.compiler.targets.interpreter.numbers import dtype_of
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import shape as s

ELEMENTS = {
    np.dtype(name): scalar
    for name, scalar in {
        "bool": t.I1, "int8": t.I8, "int16": t.I16, "int32": t.I32, "int64": t.I64,
        "uint8": t.U8, "uint16": t.U16, "uint32": t.U32, "uint64": t.U64,
        "float16": t.F16, "float32": t.F32, "float64": t.F64,
        ml_dtypes.bfloat16: t.BF16,
        ml_dtypes.float8_e4m3fn: t.F8E4M3, ml_dtypes.float8_e5m2: t.F8E5M2,
    }.items()
}  # fmt: skip
Array = np.ndarray


def pointers(build: Builder, base: Value, shape: tuple[int, ...]) -> Value:
    """Pointers to a row-major array of ``shape`` that starts at ``base``."""
    if not shape:
        return base
    size = int(np.prod(shape))
    offsets = build.emit(s.Reshape(build.emit(s.Arange(0, size)).result, shape)).result
    return build.emit(e.AddPtr(build.emit(s.Splat(base, shape)).result, offsets)).result


@dataclass
class Apply:
    """Calls ``make`` with a builder and one tile per array, inside a function; returns its results as arrays.

    ``poison`` is on: elements that an operation leaves undefined are NaN or 0xAA bytes.
    """

    printed: list[str] = field(default_factory=list)

    def __call__(
        self,
        make: Callable[..., Value | Sequence[Value]],
        *arrays: Array,
        grid: tuple[int, ...] = (1,),
    ) -> list[Array]:
        function, data = Function("apply"), [np.array(a) for a in arrays]
        build = Builder(function.body)
        tiles = []
        for i, array in enumerate(data):
            base = function.add_parameter(f"in{i}", Tile(Pointer(ELEMENTS[array.dtype])))
            tiles.append(build.emit(m.Load(pointers(build, base, array.shape))).result)
        made = make(build, *tiles)
        results = [made] if isinstance(made, Value) else list(made)
        for i, value in enumerate(results):
            base = function.add_parameter(f"out{i}", Tile(Pointer(value.type.elem)))
            build.emit(m.Store(pointers(build, base, value.type.shape), value))
            data.append(np.zeros(value.type.shape, dtype_of(value.type.elem)))
        verify(function)
        interpreter.run(function, grid, data, on_print=self.printed.append, poison=True)
        return data[len(arrays) :]
