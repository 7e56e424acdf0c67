"""The nearest of many shapes."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

# Below this many shapes a plain loop is faster than calling NumPy.
_VECTOR_FROM = 64


def shape_distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Squared Euclidean distance of two shapes with the same dims in log2 of their sizes, rounded to 12 digits."""
    return _distance(_logs(a[dim] for dim in a), _logs(b[dim] for dim in a))


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    return round(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)), 12)


def _logs(sizes: Iterable[int]) -> list[float]:
    """Of sizes of any length, which NumPy would not take."""
    return [math.log2(max(1, size)) for size in sizes]


class ShapeSet:
    """Shapes by their keys (:func:`..job.shape_key`), some 120 bytes each; among 10,000 the nearest takes 0.1 ms."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, ...], tuple[list[str], array[float]]] = {}

    def add(self, key: str, shape: Mapping[str, int]) -> None:
        """Add a shape that is not there."""
        dims = tuple(sorted(shape))
        keys, logs = self._of.setdefault(dims, ([], array("d")))
        keys.append(key)
        logs.extend(_logs(shape[dim] for dim in dims))

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._of.values())

    def some(self) -> str | None:
        """The key of the shape that came first, None where there is none."""
        return next((keys[0] for keys, _ in self._of.values()), None)

    def nearest(self, shape: Mapping[str, int]) -> str | None:
        """The first of :meth:`by_distance`, None where no shape has these dims."""
        return next(self.by_distance(shape), None)

    def by_distance(self, shape: Mapping[str, int]) -> Iterator[str]:
        """The keys of the shapes with the same dims, that at the least :func:`shape_distance` first; of equally near
        ones the smaller key, so every process answers alike."""
        dims = tuple(sorted(shape))
        if dims not in self._of:
            return iter(())
        keys, logs = self._of[dims]
        wanted, rank = _logs(shape[dim] for dim in dims), len(dims)
        if len(keys) >= _VECTOR_FROM and rank:
            return _many_by_distance(keys, logs, wanted)
        found = ((_distance(logs[at * rank : (at + 1) * rank], wanted), key) for at, key in enumerate(keys))
        return (key for _, key in sorted(found))


def _many_by_distance(keys: Sequence[str], logs: array[float], wanted: Sequence[float]) -> Iterator[str]:
    """All keys in order; the first ones, which nearly always are enough, without sorting the others."""
    import numpy as np

    # Rounded, so that shapes at the same distance tie exactly.
    distances = np.round(np.square(np.frombuffer(logs).reshape(len(keys), -1) - wanted).sum(axis=1), 12)
    least = distances.min()
    yield from sorted(keys[int(at)] for at in np.flatnonzero(distances == least))
    order = np.argsort(distances)
    behind = ((distances[at], keys[int(at)]) for at in order[distances[order] > least])
    for _, tied in itertools.groupby(behind, key=lambda pair: pair[0]):
        yield from sorted(key for _, key in tied)
