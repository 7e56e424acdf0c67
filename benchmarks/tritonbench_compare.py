"""Results of the public operators side by side: nested dicts, lists and tuples of tensors and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch

#: Largest relative error in the Frobenius norm that counts as equal, by dtype. f32 allows for products that round
#: their operands to tf32 (11 bits) in one of several ways. f64 results come from kernels that compute in f32.
#: Whole numbers have to be the same.
LIMITS = {
    torch.float64: 2e-3,
    torch.float32: 2e-3,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
    torch.float8_e4m3fn: 6e-2,
    torch.float8_e5m2: 1.2e-1,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two results are apart and by how much; ``error`` is relative, infinite where they cannot be compared."""

    place: str
    error: float
    what: str


def differences(found: object, wanted: object, place: str = "") -> Iterator[Difference]:
    """Every place where ``found`` is not ``wanted`` within the limit of its dtype."""
    if isinstance(wanted, torch.Tensor):
        if not isinstance(found, torch.Tensor):
            yield Difference(place, math.inf, f"{type(found).__name__} instead of a tensor")
        elif problem := _tensors(found, wanted):
            yield Difference(place, *problem)
    elif isinstance(wanted, Mapping) and isinstance(found, Mapping):
        if list(found) != list(wanted):
            yield Difference(place, math.inf, f"keys {list(found)} instead of {list(wanted)}")
            return
        for key in wanted:
            yield from differences(found[key], wanted[key], f"{place}[{key!r}]")
    elif _is_sequence(wanted) and _is_sequence(found):
        if len(found) != len(wanted):
            yield Difference(place, math.inf, "another length")
            return
        for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(one, other, f"{place}[{i}]")
    elif isinstance(wanted, float) and isinstance(found, float):
        yield from differences(torch.tensor(found), torch.tensor(wanted), place)
    elif type(found) is not type(wanted) or (_plain(wanted) and found != wanted):
        yield Difference(place, math.inf, f"{str(found)[:40]} instead of {str(wanted)[:40]}")


def tensors_in(result: object) -> int:
    """How many tensors and numbers a result holds: with none in it, a comparison says nothing."""
    if isinstance(result, Mapping):
        return sum(tensors_in(v) for v in result.values())
    if _is_sequence(result):
        return sum(tensors_in(v) for v in result)
    return 1 if isinstance(result, torch.Tensor) or _plain(result) else 0


def on_host(result: object) -> object:
    """The result with every tensor detached and copied to the CPU, and what is neither data nor a container as its
    type's name."""
    if isinstance(result, torch.Tensor):
        return result.detach().cpu().clone()
    if isinstance(result, Mapping):
        return {key if _plain(key) else str(key): on_host(value) for key, value in result.items()}
    if _is_sequence(result):
        return [on_host(value) for value in result]
    return result if _plain(result) else type(result).__name__


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str)


def _tensors(found: torch.Tensor, wanted: torch.Tensor) -> tuple[float, str] | None:
    """Relative error and a sentence; None where two tensors are equal within the limit."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return math.inf, f"{found.dtype} {list(found.shape)} instead of {wanted.dtype} {list(wanted.shape)}"
    if wanted.dtype not in LIMITS:
        if wanted.is_complex():
            return _tensors(torch.view_as_real(found), torch.view_as_real(wanted))
        apart = int((found != wanted).sum())
        return (apart / wanted.numel(), f"{apart} of {wanted.numel()} {wanted.dtype} differ") if apart else None
    one, other = found.double(), wanted.double()
    finite = other.isfinite()
    if not torch.equal(one.isnan(), other.isnan()):
        return math.inf, f"{int(one.isnan().sum())} NaN instead of {int(other.isnan().sum())}"
    if not torch.equal(one[~finite].nan_to_num(), other[~finite].nan_to_num()) or not one[finite].isfinite().all():
        return math.inf, "infinities in other places"
    scale = other[finite].norm()
    error = float((one[finite] - other[finite]).norm() / (scale if scale > 0 else 1.0))
    limit = LIMITS[wanted.dtype]
    return None if error <= limit else (error, f"relative error {error:.1e} of {wanted.dtype}, above {limit:.0e}")
