"""Where the arrays of a case come from: a GPU, or nowhere, where kernels are compiled and not launched.

Kinds of elements are named as in signatures: fp16, bf16, fp32, fp64, fp8e4nv, i8, u8, i32, i64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Arrays(Protocol):
    """What a case asks for its arrays."""

    def normal(self, kind: str, *shape: int, scale: float = 1.0) -> Any:
        """Normally distributed numbers around 0."""

    def uniform(self, kind: str, low: float, high: float, *shape: int) -> Any:
        """Numbers in [low, high)."""

    def integers(self, kind: str, low: int, high: int, *shape: int) -> Any:
        """Integers in [low, high)."""

    def zeros(self, kind: str, *shape: int) -> Any:
        """What a kernel writes, or adds to."""

    def permutation(self, n: int) -> Any:
        """The integers below n as i32, in any order."""

    def listed(self, values: Sequence[int]) -> Any:
        """These integers as i32."""

    def addresses(self, arrays: Sequence[Any]) -> Any:
        """Where these arrays lie, as i64."""


class OnGPU:
    """Arrays of torch on the first GPU. The same case gets the same numbers each time."""

    def __init__(self) -> None:
        import torch  # lazy: what only compiles needs no torch

        torch.manual_seed(0)
        self._torch = torch
        self._kinds = {
            "fp16": torch.float16,
            "bf16": torch.bfloat16,
            "fp32": torch.float32,
            "fp64": torch.float64,
            "fp8e4nv": torch.float8_e4m3fn,
            "i8": torch.int8,
            "u8": torch.uint8,
            "i32": torch.int32,
            "i64": torch.int64,
        }
        #: All that was made, in order, but addresses: what a launch may have written.
        self.made: list[torch.Tensor] = []

    def normal(self, kind: str, *shape: int, scale: float = 1.0) -> torch.Tensor:
        return self._keep(self._torch.randn(shape, dtype=self._wide(kind), device="cuda").mul_(scale), kind)

    def uniform(self, kind: str, low: float, high: float, *shape: int) -> torch.Tensor:
        numbers = self._torch.rand(shape, dtype=self._wide(kind), device="cuda")
        return self._keep(numbers.mul_(high - low).add_(low), kind)

    def integers(self, kind: str, low: int, high: int, *shape: int) -> torch.Tensor:
        return self._keep(self._torch.randint(low, high, shape, dtype=self._kinds[kind], device="cuda"), kind)

    def zeros(self, kind: str, *shape: int) -> torch.Tensor:
        return self._keep(self._torch.zeros(shape, dtype=self._kinds[kind], device="cuda"), kind)

    def permutation(self, n: int) -> torch.Tensor:
        return self._keep(self._torch.randperm(n, device="cuda"), "i32")

    def listed(self, values: Sequence[int]) -> torch.Tensor:
        return self._keep(self._torch.tensor(values, device="cuda"), "i32")

    def addresses(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        return self._torch.tensor([a.data_ptr() for a in arrays], dtype=self._torch.int64, device="cuda")

    def _wide(self, kind: str) -> torch.dtype:
        return self._torch.float64 if kind == "fp64" else self._torch.float32

    def _keep(self, array: torch.Tensor, kind: str) -> torch.Tensor:
        self.made.append(array.to(self._kinds[kind]))
        return self.made[-1]


@dataclass(frozen=True)
class Declared:
    """An array without memory."""

    kind: str
    shape: tuple[int, ...]


class Nowhere:
    """Arrays that are only declared."""

    def normal(self, kind: str, *shape: int, scale: float = 1.0) -> Declared:
        return Declared(kind, shape)

    def uniform(self, kind: str, low: float, high: float, *shape: int) -> Declared:
        return Declared(kind, shape)

    def integers(self, kind: str, low: int, high: int, *shape: int) -> Declared:
        return Declared(kind, shape)

    def zeros(self, kind: str, *shape: int) -> Declared:
        return Declared(kind, shape)

    def permutation(self, n: int) -> Declared:
        return Declared("i32", (n,))

    def listed(self, values: Sequence[int]) -> Declared:
        return Declared("i32", (len(values),))

    def addresses(self, arrays: Sequence[Any]) -> Declared:
        return Declared("i64", (len(arrays),))


def signature_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Types of arguments as a launch specialises them, arrays aligned to 16 bytes; of declared arrays and numbers."""
    return {name: _type_of(value) for name, value in arguments.items()}


def _type_of(value: Declared | int | float) -> str:
    if isinstance(value, Declared):
        return f"*{value.kind}:16"
    if isinstance(value, float):
        return "fp32"
    kind = "i32" if abs(value) < 1 << 31 else "i64"
    return f"{kind}:1" if value == 1 else f"{kind}:16" if value % 16 == 0 else kind
