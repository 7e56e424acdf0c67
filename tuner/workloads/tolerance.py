"""How far a result may be from the float64 reference, and the comparison itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..codec import Document, Finite
from .lanes import in_lanes
from .widen import widened

if TYPE_CHECKING:
    import numpy as np

# Elements that are looked at for what is typical.
_SAMPLE = 1 << 20
# Medians; see :func:`typical`.
_OUTLYING = 8.0


class Tolerance(Document, frozen=True, forbid_unknown_fields=True):
    """``|got - expected| <= rtol * |expected| + atol * scale(expected)``.

    ``atol`` counts in units of the typical value (:func:`typical`), so one figure serves softmax, whose values are
    near 1/N, and matmul, whose values are near sqrt(K).
    """

    noun: ClassVar[str] = "tolerance"

    atol: Finite
    rtol: Finite

    def times(self, factor: float) -> Tolerance:
        """So many times as much of either."""
        return Tolerance(factor * self.atol, factor * self.rtol)


# Units in the last place u = 2^-(mantissa bits + 1), the error of one correct rounding. The relative part allows a few
# roundings of the result; the absolute part allows the error that a long f32 accumulation, done in another order,
# leaves on elements that happen to be small: about u * sqrt(terms) of the typical value.
TOLERANCES: dict[str, Tolerance] = {
    # u = 1.1e-16; reference and result have the same precision, 2^14 terms in another order.
    "f64": Tolerance(atol=1e-13, rtol=1e-13),
    # u = 6e-8; sums of 2^14 terms give 128 u, exp and rsqrt of the targets are good to 2-4 u.
    "f32": Tolerance(atol=2e-5, rtol=2e-5),
    # u = 4.9e-4; accumulation is in f32, so two roundings of the stored result.
    "f16": Tolerance(atol=1e-3, rtol=1e-3),
    # u = 3.9e-3; as f16.
    "bf16": Tolerance(atol=8e-3, rtol=8e-3),
    # u = 6.3e-2 and 1.3e-1.
    "f8e4m3": Tolerance(atol=0.13, rtol=0.13),
    "f8e5m2": Tolerance(atol=0.25, rtol=0.25),
}
EXACT = Tolerance(0.0, 0.0)


def tolerance_for(dtype: str) -> Tolerance:
    """The table's entry for a floating-point dtype; integers must be exact."""
    return TOLERANCES.get(dtype, EXACT)


def typical(values: np.ndarray) -> float:
    """The root mean square of the finite values, but at most :data:`_OUTLYING` times the median of those that are not
    0: a few huge elements must not hide errors of all others. 0 where nothing but zeros is finite.

    For normally distributed values the root mean square is 1.5 medians, for log-normal ones (softmax) 2.7. Of large
    tensors it is that of a million elements, an odd number apart.
    """
    import numpy as np

    sample = widened(values.reshape(-1)[:: values.size // _SAMPLE | 1])
    finite = np.abs(sample[np.isfinite(sample)])
    # Squares of what is divided by the largest do not overflow.
    largest = float(finite.max(initial=0.0))
    if not largest:
        return 0.0
    rms = largest * float(np.sqrt(np.mean(np.square(finite / largest))))
    return min(rms, _OUTLYING * float(np.median(finite[finite > 0])))


@dataclass(frozen=True, slots=True)
class Comparison:
    """``worst`` is the largest error in units of what is allowed there: above 1 the result is wrong."""

    worst: float
    message: str | None = None

    @property
    def ok(self) -> bool:
        """Whether everything was within the tolerance."""
        return self.message is None


class Expected:
    """An expected tensor of any dtype, for many comparisons in float64.

    ``allowed = relative * |values| + least``; ``exact``: integers and truth values that must be, which are compared
    as they are, because float64 has 53 bits, and neighbours of 64 would be equal."""

    def __init__(self, name: str, values: np.ndarray, tolerance: Tolerance) -> None:
        import numpy as np

        self.name = name
        self.values = np.ascontiguousarray(values)
        self.exact = tolerance == EXACT and values.dtype.kind in "iub"
        self.relative = tolerance.rtol
        # Where nothing is allowed any error at all is infinitely too large.
        scale = tolerance.atol and tolerance.atol * (typical(self.values) or 1.0)
        self.least = max(scale, float(np.finfo(np.float64).tiny))
        self._tolerant = tolerance != EXACT
        self._flat = self.values.reshape(-1)

    def compare(self, got: np.ndarray) -> Comparison:
        """Compare a tensor of the same shape. NaN and infinities must be where the reference has them; poisoned outputs
        are NaN, so an element that was never written is wrong."""
        flat = got.reshape(-1)
        looked = in_lanes(lambda chunks: self._look(flat, chunks), flat.size)
        wrong = sum(count for count, _, _ in looked)
        _, worst, worst_at = max(looked, key=lambda found: found[1])
        return Comparison(worst, self._message(got, wrong, worst_at) if wrong else None)

    def _look(self, flat: np.ndarray, chunks: list[slice]) -> tuple[int, float, int]:
        """How many elements of some chunks are wrong, the largest error in units of what is allowed, and where."""
        import numpy as np

        wrong, worst, worst_at = 0, 0.0, 0
        for chunk in chunks:
            if _equal_bits(flat[chunk], self._flat[chunk]):
                continue
            ratio = self._ratios(flat[chunk], chunk)
            at = int(np.argmax(ratio))
            if ratio[at] > 1:
                wrong += int(np.count_nonzero(ratio > 1))
            if ratio[at] > worst:
                worst, worst_at = float(ratio[at]), chunk.start + at
        return wrong, worst, worst_at

    def _ratios(self, got: np.ndarray, chunk: slice) -> np.ndarray:
        """Errors in units of what is allowed; infinite where exactly one of the two is NaN or infinite."""
        import numpy as np

        if self.exact and got.dtype.kind in "iub":
            return np.where(got == self._flat[chunk], 0.0, np.inf)
        want, have = widened(self._flat[chunk]), widened(got)
        with np.errstate(invalid="ignore", over="ignore"):
            ratio: np.ndarray = np.abs(have - want)
            ratio /= self._allowed(want)
        if not np.isfinite(ratio).all():
            same = (have == want) | (np.isnan(have) & np.isnan(want))
            ratio = np.where(same, 0.0, np.where(np.isfinite(ratio), ratio, np.inf))
        return ratio

    def _allowed(self, want: np.ndarray) -> np.ndarray:
        """The error that is allowed at each of these elements."""
        import numpy as np

        allowed: np.ndarray = np.abs(want)
        allowed *= self.relative
        allowed += self.least
        return allowed

    def _message(self, got: np.ndarray, wrong: int, worst_at: int) -> str:
        import numpy as np

        index = [int(i) for i in np.unravel_index(worst_at, self.values.shape)]
        have, want = got.reshape(-1)[worst_at], self._flat[worst_at]
        allowed = float(self._allowed(widened(self._flat[worst_at : worst_at + 1]))[0])
        note = " (never written? of what was read outside?)" if have != have else ""
        within = f" +- {allowed:.2g}" if self._tolerant else ""
        return (
            f"output {self.name!r}: {wrong} of {got.size} elements are wrong; the worst at {index}: got "
            f"{_spelled(have)}{note}, expected {_spelled(want)}{within}"
        )


def _spelled(value: np.generic) -> str:
    """Integers and truth values in full."""
    return str(value) if value.dtype.kind in "iub" else f"{float(value):.6g}"


def _equal_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether two rows have the same dtype and bits: then all elements are equal, NaN and infinities too."""
    import numpy as np

    if got.dtype != want.dtype:
        return False
    bits = f"u{want.itemsize}"
    return np.array_equal(got.view(bits), want.view(bits))


def compare_all(got: Mapping[str, np.ndarray], expected: Iterable[Expected]) -> Comparison:
    """Compare every expected tensor; the first wrong one gives the message."""
    worst = 0.0
    for reference in expected:
        result = reference.compare(got[reference.name])
        worst = max(worst, result.worst)
        if not result.ok:
            return Comparison(worst, result.message)
    return Comparison(worst)
