"""Matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from .. import knobs
from ..errors import TypeMismatch
from ..ir.types import BF16, F16, F32, Scalar
from ..tile import matmul
from .arithmetic import cast_to, constant
from .builtin import builtin
from .promotion import scalar_type
from .shapes import join, permute, reshape, split
from .tensor import emit, tensor

#: Products of f32 as several of bf16, here as what is at least as precise: three have 16 bits, tf32x3 has 21; six have
#: as many as f32.
_AS_PRECISE = {"bf16x3": "tf32x3", "bf16x6": "ieee"}


@builtin
def dot(
    input: tensor,
    other: tensor,
    acc: tensor | None = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: object = F32,
) -> tensor:
    """input[M, K] @ other[K, N] + acc[M, N]; tiles of rank 3 or more are a batch of such products.

    The result has the type of ``acc``. Without ``acc`` f16 and 8-bit floats, which may be of two types, accumulate in
    ``out_dtype`` (float32, or float16), f32 and bf16 in f32, f64 in f64, integers, which have 8 bits, in i32. Where
    operands and accumulator are f16, tensor cores round the sums as they go; elsewhere the product is rounded once.
    ``input_precision`` matters for f32 operands: "tf32" (default, see the knob DEUTERON_F32_DEFAULT), "tf32x3" or
    "ieee", which are also taken for "bf16x3" and "bf16x6"; ``allow_tf32=False`` means "ieee".
    ``max_num_imprecise_acc``, at most K for 8-bit floats, has no effect.

    Raises TypeMismatch: ranks, shapes or element types of the operands that do not fit, or an accumulator of another
    shape or of a type that cannot hold such products.
    """
    _check_operands(input, other)
    _check_imprecision(input, max_num_imprecise_acc)
    input, other = _computable(input, other)
    if len(input.shape) > 3:
        options = (input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        if acc is not None and acc.shape[:-2] != input.shape[:-2]:
            raise TypeMismatch(f"tl.dot of {input.type} and {other.type}: the accumulator is {acc.type}")
        start = None if acc is None else _one_batch(acc)
        made = dot(_one_batch(input), _one_batch(other), start, *options)
        return reshape(made, (*input.shape[:-2], *made.shape[-2:]))
    if len(input.shape) == 3:
        options = (input_precision, allow_tf32, max_num_imprecise_acc, out_dtype)
        return _batched(lambda a, b, c: dot(a, b, c, *options), input, other, acc)
    if input_precision is None:
        input_precision = "ieee" if allow_tf32 is False else knobs.f32_default.get()
    input_precision = _AS_PRECISE.get(input_precision, input_precision)
    element = input.dtype
    wide = scalar_type(out_dtype)
    if isinstance(element, Scalar):
        if not element.is_float:
            wide = scalar_type("i32")
        elif element.bits == 64:
            wide = element
        elif element in (BF16, F32) and wide == F16:
            wide = F32  # whose range operands have
    shape = (input.shape[0], other.shape[1])
    start = constant(0, wide, shape) if acc is None else acc
    return emit(matmul.Dot(input.value, other.value, start.value, input_precision))


def _computable(*operands: tensor) -> list[tensor]:
    """Numbers that are only stored, and 8-bit floats of two types, as f16, which holds all of them."""
    types = [x.value.type.scalar for x in operands]
    mixed = len(set(types)) > 1 and all(type.is_float and type.bits == 8 for type in types)
    return [cast_to(x, F16) if mixed or type.is_stored_only else x for x, type in zip(operands, types, strict=True)]


def _check_operands(input: object, other: object) -> None:
    for x in (input, other):
        if not isinstance(x, tensor) or len(x.shape) < 2:
            shown = x.value.type if isinstance(x, tensor) else repr(x)
            raise TypeMismatch(
                f"tl.dot takes two tiles of rank 2 (or more: a batch), got {shown}",
                hint="add a dimension with x[:, None], or sum products with tl.sum(a * b, axis)",
            )
    a, b = cast(tensor, input), cast(tensor, other)
    if len(a.shape) != len(b.shape) or a.shape[:-2] != b.shape[:-2]:
        raise TypeMismatch(f"tl.dot of {a.value.type} and {b.value.type}: ranks or batches differ")
    for x in (a, b):
        if x.value.type.is_integer and x.value.type.scalar.bits != 8:
            raise TypeMismatch(
                f"tl.dot of {a.value.type} and {b.value.type}: integers are of 8 bits in products",
                hint="cast operands to tl.int8 where they fit, or to a float; tl.sum(a * b, axis) sums integers",
            )


def _check_imprecision(input: tensor, limit: int | None) -> None:
    k, element = input.shape[-1], input.dtype
    if isinstance(element, Scalar) and element.is_float and element.bits == 8 and limit is not None and limit > k:
        raise TypeMismatch(f"max_num_imprecise_acc ({limit}) must be <= K ({k})")


def _one_batch(x: tensor) -> tensor:
    """All dimensions but the last two as one."""
    return reshape(x, (x.numel // (x.shape[-2] * x.shape[-1]), *x.shape[-2:]))


def _batched(
    product: Callable[[tensor, tensor, tensor | None], tensor],
    a: tensor,
    b: tensor,
    acc: tensor | None,
) -> tensor:
    """The products of a batch one by one: halves of the batch until one matrix is left, then joined again."""
    if a.shape[0] == 1:
        start = None if acc is None else reshape(acc, acc.shape[1:])
        made = product(reshape(a, a.shape[1:]), reshape(b, b.shape[1:]), start)
        return reshape(made, (1, *made.shape))
    starts = (None, None) if acc is None else _halves(acc)
    parts = zip(_halves(a), _halves(b), starts, strict=True)
    even, odd = (_batched(product, x, y, start) for x, y, start in parts)
    both = permute(join(even, odd), (0, 3, 1, 2))
    return reshape(both, (a.shape[0], *both.shape[2:]))


def _halves(x: tensor) -> tuple[tensor, ...]:
    """The even and the odd members of a batch."""
    pairs = reshape(x, (x.shape[0] // 2, 2, *x.shape[1:]))
    return split(permute(pairs, (0, 2, 3, 1)))
