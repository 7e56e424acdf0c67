"""Every elementwise operation in every element type, through LLVM and ptxas on every architecture.

LLVM ends the process on an instruction that it cannot select, so this is what keeps the code generator honest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.ir import REGISTRY, SCALARS, Builder, Function, Pointer, Scalar, Tile, Value
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import assemble, emit_ptx, lower_to_llvm
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import shape as s

SIZE = 128
#: Operations of one and of two operands of one type; others are made below.
UNARY = [op for op in REGISTRY.values() if issubclass(op, e.Unary)]
BINARY = [op for op in REGISTRY.values() if issubclass(op, e.Binary)]
FLOAT_UNARY = [op for op in UNARY if op is not e.Not]
FLOAT_BINARY = [op for op in BINARY if not issubclass(op, e.IntegerBinary)]
INTEGER_UNARY = [op for op in UNARY if not issubclass(op, e.FloatUnary)]
INTEGER_BINARY = [op for op in BINARY if not issubclass(op, e.FloatBinary) and op is not e.MulHigh]
#: From sm_89 on there are conversions of f8e4m3.
F8_CAPABILITY = 89
Make = Callable[[Value, Value], object]


def _arithmetic(scalar: Scalar) -> Iterator[Make]:
    if scalar.is_float:
        yield from (lambda x, y, kind=kind: kind(x) for kind in FLOAT_UNARY)
        yield from (lambda x, y, kind=kind: kind(x, y) for kind in FLOAT_BINARY)
        yield from (lambda x, y, kind=kind: kind(x, y, True) for kind in (e.Div, e.Min, e.Max))
        yield lambda x, y: e.Sqrt(x, True)
        yield from (lambda x, y, accuracy=accuracy: e.Exp(x, accuracy) for accuracy in ("1 ulp", "2 ulp"))
        yield lambda x, y: e.Fma(x, y, x)
    else:
        yield from (lambda x, y, kind=kind: kind(x) for kind in INTEGER_UNARY)
        yield from (lambda x, y, kind=kind: kind(x, y) for kind in INTEGER_BINARY)
        if scalar.bits >= 32:
            yield lambda x, y: e.MulHigh(x, y)
    for predicate in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield lambda x, y, predicate=predicate: e.Compare(x, y, predicate)


def _casts(scalar: Scalar, capability: int) -> Iterator[Make]:
    for to in SCALARS.values():
        if to.is_stored_only or (capability < F8_CAPABILITY and to.code == "f8e4m3"):
            continue
        yield lambda x, y, to=to: e.Cast(x, to)
        if scalar.is_float and to.is_float and to.bits < scalar.bits:
            yield lambda x, y, to=to: e.Cast(x, to, "rtz")


def _function(scalar: Scalar, makers: Iterator[Make]) -> Function:
    function = Function("every")
    build = Builder(function.body)
    offsets = build.emit(s.Arange(0, SIZE)).result

    def pointers(name: str, elem: Scalar) -> Value:
        base = function.add_parameter(name, Tile(Pointer(elem)), 16)
        return build.emit(e.AddPtr(build.emit(s.Splat(base, (SIZE,))).result, offsets)).result

    x, y = (build.emit(m.Load(pointers(name, scalar))).result for name in "xy")
    for i, make in enumerate(makers):
        result = build.emit(make(x, y)).result
        build.emit(m.Store(pointers(f"out{i}", result.type.scalar), result))
    return function


def _types(arch: str) -> list[str]:
    """Every element type that is not only stored; f8e4m3 where the GPU has its conversions."""
    f8 = Target.parse(f"cuda:{arch}").capability >= F8_CAPABILITY
    return [name for name, scalar in SCALARS.items() if not scalar.is_stored_only and (f8 or name != "f8e4m3")]


@pytest.mark.parametrize(
    ("name", "arch"),
    [(name, arch) for arch in ("80", "90a", "120") for name in _types(arch)] + [("f8e4m3", "89"), ("f8e5m2", "89")],
)
def test_every_elementwise_operation_assembles(name, arch) -> None:
    scalar, target, schedule = SCALARS[name], Target.parse(f"cuda:{arch}"), Schedule(num_warps=1)
    makers = list(_casts(scalar, target.capability))
    if not name.startswith("f8"):
        makers += _arithmetic(scalar)
    function = lower_to_gpu(_function(scalar, iter(makers)), target, schedule)
    ptx = emit_ptx(lower_to_llvm(function, target, schedule), target)
    assert ".extern" not in ptx, "a function that nobody defines"
    assemble(ptx, target, schedule)
