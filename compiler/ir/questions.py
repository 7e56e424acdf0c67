"""What kernels may ask types: Triton's names for the properties of ``x.dtype`` and ``x.type``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import TypeMismatch

if TYPE_CHECKING:
    from typing import Self


#: Bits of the fraction and bias of the exponent of each floating-point format.
_FLOATS = {
    "f64": (52, 1023),
    "f32": (23, 127),
    "bf16": (7, 127),
    "f16": (10, 15),
    "f8e4m3": (3, 7),  # float8e4nv: no infinity (OCP E4M3)
    "f8e4b8": (3, 8),  # no infinity, no -0 (E4M3 FNUZ)
    "f8e4b15": (3, 15),  # below 2, no infinity and no NaN (Triton's)
    "f8e5m2": (2, 15),  # float8e5 (OCP E5M2)
    "f8e5b16": (2, 16),  # no infinity, no -0 (E5M2 FNUZ)
}


class ScalarQuestions:
    """Questions to an element type; ``x.dtype.is_fp16()``."""

    __slots__ = ()

    if TYPE_CHECKING:
        code: str
        kind: str
        bits: int

    @property
    def value(self) -> Self:
        """The type itself, as of a ``tl.constexpr`` parameter that is one."""
        return self

    @property
    def scalar(self) -> Self:
        """The type itself, as an element type is its own scalar."""
        return self

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of the format; 1 for int1."""
        return self.bits

    @property
    def int_bitwidth(self) -> int:
        """Bits of the format; answered for floats, too."""
        return self.bits

    @property
    def fp_mantissa_width(self) -> int:
        """Bits of a float's fraction, without the hidden one; raises TypeMismatch for an integer."""
        return self._format()[0]

    @property
    def exponent_bias(self) -> int:
        """What is added to the exponent of a float to store it; raises TypeMismatch for an integer."""
        return self._format()[1]

    def _format(self) -> tuple[int, int]:
        if self.code not in _FLOATS:
            raise TypeMismatch(f"{self.code} is no float: it has neither mantissa nor exponent")
        return _FLOATS[self.code]

    @property
    def itemsize(self) -> int:
        """Bytes in memory; int1 takes one."""
        return max(1, self.bits // 8)

    def get_int_max_value(self) -> int:
        """The largest number of an integer type; raises TypeMismatch for a float."""
        self._whole()
        return (1 << (self.bits - self.is_int_signed())) - 1

    def get_int_min_value(self) -> int:
        """The smallest number of an integer type; raises TypeMismatch for a float."""
        self._whole()
        return -(1 << (self.bits - 1)) if self.is_int_signed() else 0

    def _whole(self) -> None:
        if self.is_floating():
            raise TypeMismatch(f"{self.code} is a float: it has no largest integer")

    def is_floating(self) -> bool:
        return self.kind == "float"

    def is_standard_floating(self) -> bool:
        """True for floats of 16 bits and more, bfloat16 included."""
        return self.is_floating() and self.bits > 8

    def is_int(self) -> bool:
        """As in Triton true for booleans, too."""
        return self.kind != "float"

    def is_int_signed(self) -> bool:
        """False for booleans."""
        return self.kind == "int"

    def is_int_unsigned(self) -> bool:
        """As in Triton true for booleans, too."""
        return self.kind in ("uint", "bool")

    def is_bool(self) -> bool:
        return self.kind == "bool"

    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        """False: only pointers may not be stored through."""
        return False

    def is_block(self) -> bool:
        return False

    def is_fp8(self) -> bool:
        """True for all 8-bit formats."""
        return self.is_floating() and self.bits == 8


def ask_whether(spelled: str, code: str) -> None:
    """Let element types answer ``is_SPELLED()``: whether they are the one of this ``code``."""

    def asked(self: ScalarQuestions) -> bool:
        return self.code == code

    asked.__name__, asked.__qualname__ = f"is_{spelled}", f"ScalarQuestions.is_{spelled}"
    setattr(ScalarQuestions, asked.__name__, asked)


class PointerQuestions:
    """Questions to a pointer type; ``x_ptr.dtype.element_ty``."""

    __slots__ = ()

    if TYPE_CHECKING:
        pointee: Any
        const: bool

    @property
    def scalar(self) -> Self:
        """The pointer type itself, not its pointee."""
        return self

    @property
    def element_ty(self) -> Any:
        """What kernels call the pointee."""
        return self.pointee

    @property
    def primitive_bitwidth(self) -> int:
        """64, the bits of an address."""
        return 64

    def is_ptr(self) -> bool:
        return True

    def is_block(self) -> bool:
        return False

    def is_const(self) -> bool:
        """Whether the kernel promised not to store through it."""
        return self.const

    def is_floating(self) -> bool:
        """False, whatever the pointee is."""
        return False

    def is_int(self) -> bool:
        """False, whatever the pointee is."""
        return False


class TileQuestions:
    """Questions to ``x.type``: a tile's element type, or a scalar's own properties."""

    __slots__ = ()

    if TYPE_CHECKING:
        elem: Any
        shape: tuple[int, ...]

    @property
    def element_ty(self) -> Any:
        """A tile's element type; what a scalar pointer points to."""
        return self.elem if self.shape or not self.elem.is_ptr() else self.elem.element_ty

    @property
    def primitive_bitwidth(self) -> int:
        """Bits of one element; 64 for pointers."""
        return int(self.elem.primitive_bitwidth)

    @property
    def numel(self) -> int:
        """Elements of a tile; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, as bits divided by 8."""
        return self.numel * self.primitive_bitwidth // 8

    def get_block_shapes(self) -> tuple[int, ...]:
        """Sizes of the dimensions; empty for a scalar."""
        return self.shape

    def is_block(self) -> bool:
        """True for tiles, false for scalars."""
        return bool(self.shape)

    def is_ptr(self) -> bool:
        """True for a scalar pointer only: a tile of pointers is a block."""
        return not self.shape and self.elem.is_ptr()

    def is_floating(self) -> bool:
        """True for a scalar only; ask ``x.dtype`` about a tile."""
        return not self.shape and self.elem.is_floating()

    def is_int(self) -> bool:
        """True for a scalar integer or boolean only; ask ``x.dtype`` about a tile."""
        return not self.shape and self.elem.is_int()
