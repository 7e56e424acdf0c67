"""A ranking of configurations with its identity and what it was worth where it could be checked."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, ClassVar

import msgspec
from msgspec import field

from ..codec import Document, canonical_json
from ..job import shape_key
from ..prediction import CrossValidation, Ranking
from ..space import Configuration
from ..trial import utc_now
from .fingerprint import DeviceFingerprint

# Shapes whose answers a predictor keeps.
_KEPT = 4096


class Predictor(Document, frozen=True, dict=True):
    """What predicts configurations of one kernel on one device in one dtype for shapes that were not tuned.

    ``shapes``: those that it was trained on. ``accuracy``: how it did at each of them with that shape left out.
    ``toolchain``: what the times were measured with; empty where that is not known. Everything else is as in
    :class:`~.record.ConfigRecord`. Plain JSON: nothing in it is executed, and what is no forest is refused when it is
    read.
    """

    noun: ClassVar[str] = "predictor"

    kernel_name: str
    kernel_hash: str
    device: DeviceFingerprint
    dtype: str
    toolchain: Mapping[str, str]
    shapes: Annotated[tuple[Mapping[str, int], ...], msgspec.Meta(min_length=1, max_length=10_000)]
    trials: int
    ranking: Ranking
    accuracy: CrossValidation
    dims_from_arguments: Mapping[str, str] = field(default_factory=dict)
    dtype_argument: str | None = None
    created_at: str = field(default_factory=utc_now)
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        for shape in self.shapes:
            if set(shape) != set(self.ranking.dims):
                raise ValueError(f"the shape {shape_key(shape)} is not over {', '.join(self.ranking.dims)}")
            if not all(1 <= size < 1 << 40 for size in shape.values()):
                raise ValueError(f"the shape {shape_key(shape)} has a size that is not 1 to 2^40")

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the sizes."""
        return self.ranking.dims

    @cached_property
    def toolchain_key(self) -> str:
        """As of a record."""
        return canonical_json(dict(self.toolchain))

    @cached_property
    def words(self) -> str:
        """What is said of a shape that it answers for: why, and what the answer is worth."""
        found = self.accuracy
        return (
            f"was not tuned on {self.device.key}; predicted from {self.trials} trials of {len(self.shapes)} shapes: "
            f"{found.expected_loss:.1%} slower than the best measured is expected, {1 / found.predicted.worst - 1:.0%} "
            f"was the most of {found.shapes} shapes that were left out"
        ) + "".join(f"; {doubt}" for doubt in found.doubts)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is unique among predictors, and their order in a bundle."""
        return (self.kernel_hash, self.device.key, self.dtype, self.toolchain_key)

    def distance(self, shape: Mapping[str, int]) -> float:
        """The squared distance in log2 of the sizes to the nearest shape that it was trained on."""
        wanted = [math.log2(max(1, shape[dim])) for dim in self.ranking.dims]
        return min(
            sum((math.log2(known[dim]) - size) ** 2 for dim, size in zip(self.ranking.dims, wanted, strict=True))
            for known in self.shapes
        )

    def predict(self, shape: Mapping[str, int], farthest: float) -> Configuration | None:
        """The configuration that is expected to be the fastest at a shape. None where no known one is legal there,
        where the nearest trained shape is farther than ``farthest`` (:meth:`distance`), where the shape has other dims,
        or where predicting was no better than the nearest shape and the default. Answers are kept: launches repeat."""
        if not self._pays or shape.keys() != self._dims:
            return None
        key = (farthest, *(shape[dim] for dim in self.ranking.dims))
        with self._lock:
            if key in self._known:
                return self._known[key]
        found = None if self.distance(shape) > farthest else self.ranking.best(shape)
        with self._lock:
            while len(self._known) >= _KEPT:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found

    def objection(self, shape: Mapping[str, int], farthest: float) -> str:
        """Why :meth:`predict` has no answer for a shape over its dims, in words."""
        if not self._pays:
            return "predicting did no better than the nearest shape or the default at shapes that were left out"
        if self.distance(shape) > farthest:
            return (
                "every shape that predictions were learnt from is farther than 8 times in one size or 4.3 times in two"
            )
        return (
            "of the configurations that predictions choose among, none is both legal there and known to be right at a "
            "shape as large in every size"
        )

    @cached_property
    def _pays(self) -> bool:
        return self.accuracy.pays

    @cached_property
    def _dims(self) -> frozenset[str]:
        return frozenset(self.ranking.dims)

    @cached_property
    def _known(self) -> dict[tuple[float, ...], Configuration | None]:
        return {}

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()
