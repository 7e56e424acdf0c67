"""Microscaling formats as PyTorch tensors, under the names of Triton's ``triton.tools.mxfp``: what programs prepare for
``tl.dot_scaled``, and compare with.

OCP Microscaling Formats (MX) Specification, version 1.0: E2M1 has a sign, two bits of exponent of bias 1 and one of
mantissa; a scale, E8M0, is a power of two, and 255 is NaN.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from deuteron.compiler.errors import DeuteronError

#: The magnitudes of E2M1 by code.
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: The exponent that a scale's code 0 stands for, negated; the code of NaN.
_BIAS, _NAN = 127, 255


class NoSuchDimension(DeuteronError, AssertionError):
    """A dimension that a tensor does not have. Programs for Triton expect an AssertionError."""


def _torch() -> Any:
    return importlib.import_module("torch")


class _CodeTensor:
    """Codes of a format, one a byte, in ``data``: made of ``data``, f32 numbers, or of ``size`` by :meth:`random`.

    Raises:
        DeuteronError: neither is given.
    """

    def __init__(self, data: Any = None, size: int | tuple[int, ...] | None = None, device: Any = None) -> None:
        if data is None and size is None:
            raise DeuteronError(f"{type(self).__name__} of nothing", hint="give it data or a size")
        self.device = device if data is None else data.device
        if data is not None:
            self.data = self._codes(data)
        else:
            self.size = (size,) if isinstance(size, int) else size

    def _codes(self, values: Any) -> Any:
        raise NotImplementedError(type(self).__name__)

    @staticmethod
    def _only_f32(dtype: Any) -> None:
        if dtype != _torch().float32:
            raise DeuteronError(f"these numbers become float32, not {dtype}", hint="convert them afterwards")


class MXFP4Tensor(_CodeTensor):
    """E2M1 numbers: ``data`` has a code in the lower half of each byte. Numbers are rounded to nearest, ties to the
    even code; 6 takes the place of larger ones, of infinity and of NaN."""

    def random(self) -> MXFP4Tensor:
        """Any of the 16 codes in each place."""
        torch = _torch()
        self.data = torch.randint(0, 16, size=self.size, dtype=torch.uint8, device=self.device)
        return self

    def to(self, dtype: Any) -> Any:
        """The numbers as float32; raises DeuteronError for another dtype."""
        self._only_f32(dtype)
        torch = _torch()
        known = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float32, device=self.device)
        return known[self.data.long()]

    def _codes(self, values: Any) -> Any:
        torch = _torch()
        sizes = torch.nan_to_num(values.abs().double(), nan=E2M1[-1], posinf=E2M1[-1])
        middles = [(a + b) / 2 for a, b in zip(E2M1, E2M1[1:], strict=False)]
        codes = torch.zeros_like(sizes, dtype=torch.uint8)
        for lower, middle in enumerate(middles):  # a tie goes up where the code below is odd
            codes += (sizes >= middle) if lower % 2 else (sizes > middle)
        return codes | (torch.signbit(values).to(torch.uint8) << 3)

    def to_packed_tensor(self, dim: int) -> Any:
        """Two codes a byte along ``dim``, the first one in the lower half; after an odd number a zero.

        Raises:
            NoSuchDimension: the tensor has it not.
        """
        torch = _torch()
        if not 0 <= dim < self.data.ndim:
            raise NoSuchDimension(
                f"The dimension to pack along is not within the range of tensor dimensions: {dim}, of {self.data.ndim}",
                hint="count from 0",
            )
        data = self.data
        if data.shape[dim] % 2:
            data = torch.cat([data, torch.zeros_like(data.narrow(dim, 0, 1))], dim)
        low, high = data.unflatten(dim, (-1, 2)).unbind(dim + 1)
        return low | (high << 4)

    def unpack_packed_tensor(self, packed_tensor: Any, dim: int, original_shape: Sequence[int]) -> Any:
        """The codes, one a byte, of what :meth:`to_packed_tensor` gave of a tensor in ``original_shape``."""
        halves = _torch().stack([packed_tensor & 0xF, packed_tensor >> 4], dim + 1)
        return halves.flatten(dim, dim + 1).narrow(dim, 0, original_shape[dim])


class MXScaleTensor(_CodeTensor):
    """E8M0 scales: the exponent of a number is kept; NaN takes the place of what is not above 0 or not finite."""

    def random(self, low: float | None = None, high: float | None = None) -> MXScaleTensor:
        """Any scale from ``low`` to ``high``, both rounded down to powers of two, by default any there is; no NaN.

        Raises:
            DeuteronError: there is none between, or one of them is not a finite number above 0.
        """
        first = 0 if low is None else max(0, self._exponent(low))
        last = _NAN - 1 if high is None else min(_NAN - 1, self._exponent(high))
        if first > last:
            raise DeuteronError(f"no scale is from {low} to {high}", hint="low comes first")
        self.data = _torch().randint(first, last + 1, size=self.size, dtype=_torch().uint8, device=self.device)
        return self

    @staticmethod
    def _exponent(number: float) -> int:
        """The code of the largest power of two that is not above ``number``."""
        if not 0 < number < math.inf:
            raise DeuteronError(f"no scale is {number}", hint="scales are finite and above 0")
        return math.frexp(number)[1] - 1 + _BIAS

    def to(self, dtype: Any) -> Any:
        """The scales as float32; raises DeuteronError for another dtype."""
        self._only_f32(dtype)
        torch = _torch()
        powers = torch.ldexp(torch.ones_like(self.data, dtype=torch.float64), self.data.int() - _BIAS)
        return torch.where(self.data == _NAN, torch.nan, powers).to(torch.float32)

    def _codes(self, values: Any) -> Any:
        torch = _torch()
        _, exponents = torch.frexp(values)
        codes = (exponents - 1 + _BIAS).clamp(0, _NAN - 1)
        return torch.where(torch.isfinite(values) & (values > 0), codes, _NAN).to(torch.uint8)
