"""What predictions were worth at shapes that were left out of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeAlias

import msgspec

from ..codec import Document

#: The least fraction that is told: what is computed from it stays finite.
LEAST = 1e-12
#: Time of the best configuration over that of the chosen one.
Fraction: TypeAlias = Annotated[float, msgspec.Meta(ge=LEAST, le=1)]


class Accuracy(Document, frozen=True):
    """Fractions of the best over shapes: 1 is the best configuration of each. ``p10``: the tenth part is below it
    (nearest rank)."""

    noun: ClassVar[str] = "accuracy"

    geomean: Fraction
    p10: Fraction
    worst: Fraction

    def __post_init__(self) -> None:
        if self.worst > self.p10:
            raise ValueError(f"the worst fraction {self.worst} is above p10, {self.p10}")

    @classmethod
    def of(cls, fractions: Sequence[float]) -> Accuracy:
        """The accuracy of at least one fraction; those below :data:`LEAST` count as that."""
        ordered = sorted(max(LEAST, fraction) for fraction in fractions)
        mean = math.exp(math.fsum(map(math.log, ordered)) / len(ordered))
        tenth = ordered[max(0, math.ceil(0.1 * len(ordered)) - 1)]
        return cls(min(max(LEAST, mean), 1.0), tenth, ordered[0])

    def __str__(self) -> str:
        return f"geomean {self.geomean:.3f}, p10 {self.p10:.3f}, worst {self.worst:.3f}"


class CrossValidation(Document, frozen=True):
    """What each way to choose gave at shapes that were left out, one after the other.

    ``shapes``: how many all of the ways were scored at. ``default`` is None where the default configuration was not
    measured at them. ``unmeasured``: the share of shapes whose predicted configuration was not measured there, so that
    the first measured one in the ranking stood for it. ``unanswered``: of all shapes the share for which no
    configuration was known to be right, so that a lookup would not have predicted; they are not among ``shapes``.
    """

    noun: ClassVar[str] = "cross-validation"

    shapes: Annotated[int, msgspec.Meta(ge=1)]
    predicted: Accuracy
    nearest: Accuracy
    default: Accuracy | None = None
    unmeasured: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    unanswered: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0

    @property
    def pays(self) -> bool:
        """Whether predicting was better than what lookups answer else."""
        others = [self.nearest] if self.default is None else [self.nearest, self.default]
        return all(self.predicted.geomean > other.geomean for other in others)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the figures do not tell, in words; nothing where every choice was measured."""
        found = []
        if self.unmeasured:
            found.append(f"at {self.unmeasured:.0%} of them the next choice stood for one that was not measured")
        if self.unanswered:
            found.append(f"at {self.unanswered:.0%} of all shapes no configuration was known to be right")
        return tuple(found)

    @property
    def expected_loss(self) -> float:
        """How much slower than the best that was measured at a shape a predicted configuration is in the geometric
        mean, 0.03 for 3 %."""
        return 1 / self.predicted.geomean - 1
