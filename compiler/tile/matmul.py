"""The matrix product of tiles."""

from __future__ import annotations

from ..ir.core import Op, Value
from ..ir.types import F16, F32, F64, I32, Tile

PRECISIONS = ("tf32", "tf32x3", "ieee")


class Dot(Op, mnemonic="dot"):
    """a[M, K] @ b[K, N] + acc[M, N], accumulated in acc's type (f32; f64 for f64, i32 for 8-bit integers).

    ``precision`` matters for f32 operands: "tf32" takes the first 10 bits of their mantissas, "tf32x3" recovers most of
    f32 with three products, "ieee" multiplies in full f32.
    """

    a: Value
    b: Value
    acc: Value
    precision: str = "tf32"

    def infer(self) -> tuple[Tile, ...]:
        """Result: the type of ``acc``, [M, N] for a[M, K] and b[K, N] of one element type.

        f64 accumulates in f64, other floats in f32 or f16, integers in i32; anything else is a TypeMismatch.
        """
        a, b, acc = self.a.type, self.b.type, self.acc.type
        if a.rank != 2 or b.rank != 2:
            raise self.fail("dot takes tiles of rank 2")
        if a.elem != b.elem:
            raise self.fail("both operands must have one element type", hint="cast one of them with .to()")
        if a.shape[1] != b.shape[0]:
            raise self.fail(f"inner dimensions differ: {a.shape[1]} of the first operand, {b.shape[0]} of the second")
        if acc.shape != (a.shape[0], b.shape[1]):
            raise self.fail(f"the accumulator must have shape {[a.shape[0], b.shape[1]]}")
        allowed = (F64,) if a.elem == F64 else (F32, F16) if a.is_float else (I32,)
        if acc.elem not in allowed:
            raise self.fail(f"cannot accumulate {a.elem.code} products in {acc.elem.code}")
        if self.precision not in PRECISIONS:
            raise self.fail(f"unknown precision {self.precision!r}", hint=", ".join(PRECISIONS))
        return (acc,)
