"""Kernels built operation by operation, run on the CPU target and on the interpreter."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from deuteron.compiler.ir import Block, Builder, Function, Op, Pointer, Tile, Value, parse_type, verify
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import cpu, interpreter
from deuteron.compiler.targets.interpreter.numbers import dtype_of
from deuteron.compiler.tile import control, elementwise, memory, reduction, shape

Array = np.ndarray

NAMES = {
    "bool": "i1", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    **{f"{kind}int{b}": f"{'u' if kind else 'i'}{b}" for kind in ("", "u") for b in (8, 16, 32, 64)},
}  # fmt: skip


def element_name(array: Array) -> str:
    return NAMES[array.dtype.name]


@dataclass
class Kernel:
    """A function under construction, with short names for what tests write often."""

    function: Function = field(default_factory=lambda: Function("kernel"))

    def __post_init__(self) -> None:
        self.build = Builder(self.function.body)

    def emit(self, op: Op) -> Value:
        self.build.emit(op)
        return op.results[0]

    def effect(self, op: Op) -> Op:
        return self.build.emit(op)

    def parameter(self, name: str, type: str, divisibility: int = 1) -> Value:
        return self.function.add_parameter(name, parse_type(type), divisibility)

    def constant(self, value: float, type: str | Tile) -> Value:
        made = parse_type(type) if isinstance(type, str) else type
        return self.emit(elementwise.Constant(value, made))

    def arange(self, size: int) -> Value:
        return self.emit(shape.Arange(0, size))

    def splat(self, x: Value, sizes: Sequence[int]) -> Value:
        return self.emit(shape.Splat(x, tuple(sizes)))

    def binary(self, kind: type[Op], x: Value, y: Value | float) -> Value:
        """``kind`` of x and y; a scalar or number is spread over the other's shape."""
        if not isinstance(y, Value):
            y = self.constant(y, x.type)
        elif y.type.rank < x.type.rank:
            y = self.splat(y, x.type.shape)
        elif x.type.rank < y.type.rank:
            x = self.splat(x, y.type.shape)
        return self.emit(kind(x, y))

    def less(self, x: Value, y: Value | int) -> Value:
        if not isinstance(y, Value):
            y = self.constant(y, x.type)
        elif not y.type.rank and x.type.rank:
            y = self.splat(y, x.type.shape)
        return self.emit(elementwise.Compare(x, y, "lt"))

    def grid_of(self, sizes: Sequence[int], strides: Sequence[int | Value]) -> Value:
        """The i32 offsets sum(index * stride) of a tile of ``sizes``."""
        total: Value | None = None
        for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
            index = self.emit(shape.Arange(0, size))
            for other in range(len(sizes)):
                if other != axis:
                    index = self.emit(shape.ExpandDims(index, other))
            if not isinstance(stride, int) or stride != 1:
                index = self.binary(elementwise.Mul, index, stride)
            index = self.emit(shape.Broadcast(index, tuple(sizes)))
            total = index if total is None else self.emit(elementwise.Add(total, index))
        assert total is not None
        return total

    def pointers(self, base: Value, offsets: Value) -> Value:
        if offsets.type.rank:
            base = self.splat(base, offsets.type.shape)
        return self.emit(elementwise.AddPtr(base, offsets))

    def rows(self, base: Value, sizes: Sequence[int]) -> Value:
        """Pointers to a row-major array."""
        if not sizes:
            return base
        strides = [int(np.prod(sizes[d + 1 :])) for d in range(len(sizes))]
        return self.pointers(base, self.grid_of(sizes, strides))

    def load(self, pointer: Value, mask: Value | None = None, other: Value | None = None) -> Value:
        return self.emit(memory.Load(pointer, mask, other))

    def store(self, pointer: Value, value: Value, mask: Value | None = None) -> None:
        self.build.emit(memory.Store(pointer, value, mask))

    def region(self, types: Sequence[Tile], body: Callable[..., object]) -> Block:
        block = Block()
        args = [block.add_argument(t) for t in types]
        with self.build.into(block):
            made = body(*args)
            values = tuple(made) if isinstance(made, tuple | list) else (made,)
            self.build.emit(control.Yield(values))
        return block

    def combine(self, inputs: Sequence[Value], body: Callable[..., object]) -> Block:
        types = [Tile(v.type.elem) for v in inputs]
        return self.region([*types, *types], body)

    def reduce(self, inputs: Value | Sequence[Value], axis: int, body: Callable[..., object]) -> list[Value]:
        held = (inputs,) if isinstance(inputs, Value) else tuple(inputs)
        op = reduction.Reduce(held, axis, self.combine(held, body))
        return list(self.build.emit(op).results)

    def scan(
        self,
        inputs: Value | Sequence[Value],
        axis: int,
        body: Callable[..., object],
        reverse: bool = False,
    ) -> list[Value]:
        held = (inputs,) if isinstance(inputs, Value) else tuple(inputs)
        op = reduction.Scan(held, axis, reverse, self.combine(held, body))
        return list(self.build.emit(op).results)

    def loop(
        self,
        lower: Value,
        upper: Value,
        step: Value,
        inits: Sequence[Value],
        body: Callable[..., object],
    ) -> list[Value]:
        block = self.region([lower.type, *(v.type for v in inits)], body)
        op = control.For(lower, upper, step, tuple(inits), 0, 1, block)
        return list(self.build.emit(op).results)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def compile_function(function: Function, schedule: Schedule | None = None) -> cpu.LoadedKernel:
    verify(function)
    program = cpu.lower_to_llvm(function, schedule or Schedule(enable_fp_fusion=False))
    return cpu.load(cpu.emit_object(program), program.name)


def run_cpu(
    function: Function,
    arguments: Sequence[Array | int | float],
    grid: tuple[int, ...] = (1,),
    *,
    threads: int = 1,
    schedule: Schedule | None = None,
) -> None:
    """Run on the CPU target; arrays are changed in place."""
    plain = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    types = [p.value.type for p in function.parameters]
    compiled = compile_function(function, schedule)
    compiled.launch((*grid, 1, 1)[:3], plain, types, threads)


@pytest.fixture
def run() -> Callable[..., None]:
    return run_cpu


@pytest.fixture
def load_kernel() -> Callable[..., cpu.LoadedKernel]:
    return compile_function


@dataclass
class Both:
    """Runs ``make(kernel, tiles...)`` on whole arrays; returns what the CPU and what the interpreter computed."""

    def __call__(self, make: Callable[..., Value | Sequence[Value]], *arrays: Array) -> tuple[list[Array], list[Array]]:
        built = Kernel()
        tiles = []
        for i, array in enumerate(arrays):
            base = built.parameter(f"in{i}", f"*{element_name(array)}")
            tiles.append(built.load(built.rows(base, array.shape)))
        made = make(built, *tiles)
        results = [made] if isinstance(made, Value) else list(made)
        outputs = []
        for i, value in enumerate(results):
            base = built.function.add_parameter(f"out{i}", Tile(Pointer(value.type.elem)))
            built.store(built.rows(base, value.type.shape), value)
            outputs.append(np.zeros(value.type.shape, dtype_of(value.type.elem)))
        found = [o.copy() for o in outputs]
        run_cpu(built.function, [*(a.copy() for a in arrays), *found])
        with np.errstate(all="ignore"):
            interpreter.run(built.function, (1,), [*(a.copy() for a in arrays), *outputs])
        return found, outputs


@pytest.fixture
def both() -> Both:
    return Both()


def assert_equal(found: Array, wanted: Array, tolerance: float = 0.0) -> None:
    """Equal bits (NaN equals NaN), or equal within ``tolerance`` relative to the magnitude of each element."""
    assert found.dtype == wanted.dtype
    if found.dtype.kind in "iub":
        np.testing.assert_array_equal(found, wanted)
        return
    np.testing.assert_allclose(
        found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=0, equal_nan=True
    )


@pytest.fixture
def same() -> Callable[..., None]:
    return assert_equal


class Guarded:
    """An array that ends where the memory that may be touched ends: one element more is a segmentation fault."""

    def __init__(self, content: Array) -> None:
        page = mmap.PAGESIZE
        size = -(-content.nbytes // page) * page
        self._memory = mmap.mmap(-1, size + page)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(self._address + size), page, 0) == 0
        self.offset = size - content.nbytes
        held = np.frombuffer(self._memory, np.uint8, content.nbytes, self.offset)
        self.array = held.view(content.dtype).reshape(content.shape)
        self.array[...] = content


@pytest.fixture
def guarded() -> type[Guarded]:
    return Guarded
