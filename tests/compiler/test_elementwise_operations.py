"""Every elementwise operation that there is, on every target, against Python's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from elementwise_cases import CASES, SIZE, Array, Number

from deuteron.compiler.ir import REGISTRY, SCALARS, Builder, Function, Op, Pointer, Tile, Value, verify
from deuteron.compiler.targets.interpreter.numbers import dtype_of
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import shape as s

#: From the registry: an operation of which nobody has said what it computes fails.
OPERATIONS = [op for op in REGISTRY.values() if op.elementwise]
#: Relative and absolute errors. Functions of f32 on GPUs are approximations whose errors grow with their arguments, as
#: ``exp``'s do; narrower floats are rounded.
TOLERANCES = {"f32": (3e-6, 5e-7), "f64": (1e-14, 1e-15), "f16": (1.1e-3, 1e-6), "bf16": (8e-3, 1e-6)}


def same(name: str, found: Array, expected: Array, type: str) -> None:
    if type in TOLERANCES:
        relative, absolute = TOLERANCES[type]
        wide = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(*wide, relative, absolute, err_msg=name)
    else:
        np.testing.assert_array_equal(found, expected, name)


class Tiles:
    """A function of whole tiles, and the arrays that it is called with."""

    def __init__(self) -> None:
        self.function = Function("every")
        self.build = Builder(self.function.body)
        self.arrays: list[Array] = []

    def load(self, type: str, array: Array) -> Value:
        return self.build.emit(m.Load(self._pointers(type, array))).result

    def store(self, value: Value) -> Array:
        """What will hold ``value``."""
        array = np.zeros(SIZE, dtype_of(value.type.elem))
        self.build.emit(m.Store(self._pointers(value.type.scalar.code, array), value))
        return array

    def _pointers(self, type: str, array: Array) -> Value:
        base = self.function.add_parameter(f"p{len(self.arrays)}", Tile(Pointer(SCALARS[type])), 16)
        self.arrays.append(array)
        places = self.build.emit(s.Arange(0, SIZE)).result
        return self.build.emit(e.AddPtr(self.build.emit(s.Splat(base, (SIZE,))).result, places)).result


def code_of(array: Array) -> str:
    computed = (scalar for scalar in SCALARS.values() if not scalar.is_stored_only)
    return next(scalar.code for scalar in computed if dtype_of(scalar) == array.dtype)


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.mnemonic)
def test_every_target_computes_it(
    op: type[Op], run_on_target: Callable[..., None], request: pytest.FixtureRequest
) -> None:
    assert op in CASES, "tests/compiler/elementwise_cases.py says what it computes"
    tiles = Tiles()
    checks: list[tuple[str, Array, Array, str]] = []
    for case in CASES[op]:
        # The simulator has no i128, which upper halves of 64-bit products are of.
        narrow = op is e.MulHigh and request.node.callspec.params["run_on_target"] == "simulated"
        for type in (type for type in case.types if not (narrow and type.endswith("64"))):
            operands = case.operands(type)
            made = case.make(tiles.build, *(tiles.load(code_of(a), a) for a in operands))
            result = made.type.scalar
            checks.append((f"{case.name} of {type}", tiles.store(made), case.expected(operands, result), result.code))
    run_on_target(verify(tiles.function), (1,), tiles.arrays)
    for name, found, expected, type in checks:
        same(name, found, expected, type)


def rivals(op: type[Op]) -> Iterator[Callable[..., Number]]:
    """What a wrong rule may compute instead: what others do of operands of the same type, or powers."""
    base, type = e.Unary if issubclass(op, e.Unary) else e.Binary, CASES[op][0].types[0]
    others = (CASES[other][0] for other in OPERATIONS if other is not op and issubclass(other, base))
    yield from (case.number for case in others if type in case.types)
    if base is e.Unary:
        yield from (lambda x: x, lambda x: x * x, lambda x: x * x * x)


@pytest.mark.parametrize(
    "op", [op for op in OPERATIONS if issubclass(op, e.Unary | e.Binary)], ids=lambda op: op.mnemonic
)
def test_operands_tell_operations_apart(op: type[Op]) -> None:
    case = CASES[op][0]
    scalar = SCALARS[case.types[0]]
    operands = case.operands(scalar.code)
    expected = case.expected(operands, scalar)
    for number in rivals(op):
        with suppress(ArithmeticError, TypeError, ValueError):  # not a number: that is another one, too
            assert (replace(case, number=number).expected(operands, scalar) != expected).any()
