"""Choosing among known configurations for a shape that was never measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from ..codec import Document, Scalar
from ..errors import ExpressionError
from ..expression import Expression
from ..refusal import describe
from ..space import Configuration, Space, config_key
from .features import PROCESSORS, Feature, feature_rows, is_count
from .forest import Forest

#: What a ranking may have at most: it comes from files and services, and is evaluated at launches.
MOST_CANDIDATES, MOST_FEATURES, MOST_DIMS = 256, 512, 16


class Ranking(Document, frozen=True):
    """Trees that order the ``candidates``, configurations that worked somewhere, by their predicted time at a shape.

    ``space`` says which of them a shape may have: its constraints see ``dims`` and the space's constants. ``grid``:
    expressions of how many programs a launch has, over the same names and the parameters; none where it is not known.
    ``right_at``: for each candidate shapes, as sizes in the order of ``dims``, at which it was found right; it is
    offered to shapes that are no larger than one of them. Empty where nobody said so: then none is :meth:`best`.
    The trees predict log(time / time of the shape's best), which is compared within a shape alone.
    """

    noun: ClassVar[str] = "ranking"

    dims: tuple[str, ...]
    space: Space
    grid: tuple[str, ...]
    features: tuple[Feature, ...]
    candidates: tuple[Mapping[str, Scalar], ...]
    forest: Forest
    right_at: tuple[tuple[tuple[int, ...], ...], ...] = ()

    def __post_init__(self) -> None:
        for name, found, most in (
            ("dims", len(self.dims), MOST_DIMS),
            ("features", len(self.features), MOST_FEATURES),
            ("candidates", len(self.candidates), MOST_CANDIDATES),
        ):
            if not 0 < found <= most:
                raise ValueError(f"{found} {name}; 1 to {most} can be read")
        if self.forest.features > len(self.features):
            raise ValueError(f"trees split by {self.forest.features} features; there are {len(self.features)}")
        names = set(self.space.names)
        self._check_shapes(names)
        for feature in self.features:
            unknown = (set(feature.dims) - set(self.dims)) | (set(feature.parameters) - names)
            if unknown:
                raise ValueError(f"the feature {feature.text!r} is of {min(unknown)!r}, which is not known")
        self._check_names(names)
        counts = {p.name for p in self.space.parameters if all(map(is_count, p.choices))}
        for feature in self.features:
            if feature.form != "level" and not counts.issuperset(feature.parameters):
                raise ValueError(
                    f"the feature {feature.text!r} is of parameters whose choices are positive whole numbers; those of "
                    f"{min(set(feature.parameters) - counts)!r} are not"
                )
        unconstrained = Space(self.space.parameters)
        for config in self.candidates:
            wrong = unconstrained.violations(config)
            if wrong:
                raise ValueError(f"the candidate {config_key(config)} is not of the space: {wrong[0]}")
        if self.right_at and len(self.right_at) != len(self.candidates):
            raise ValueError(f"{len(self.right_at)} of {len(self.candidates)} candidates say where they are right")
        if any(len(sizes) != len(self.dims) for known in self.right_at for sizes in known):
            raise ValueError("a shape at which a candidate is right has another number of sizes than there are dims")

    def _check_shapes(self, parameters: set[str]) -> None:
        """Every shape must give constants that the space can be bound to, and a number of processors."""
        if len(set(self.dims)) < len(self.dims):
            raise ValueError(f"a dim is named twice in {', '.join(self.dims)}")
        clash = parameters & set(self.dims)
        if clash:
            raise ValueError(f"{min(clash)!r} is a dim and also a parameter of the space")
        processors = self.space.constants.get(PROCESSORS, 1)
        if not is_count(processors):
            raise ValueError(
                f"{PROCESSORS} is {describe(processors)}, and has to be a positive whole number below 2^62"
            )

    def _check_names(self, parameters: set[str]) -> None:
        known = {*self.dims, *self.space.constants}
        unknown = self.space.free_names - known
        for text in self.grid:
            unknown |= Expression.parse(text).names - known - parameters
        if unknown:
            raise ValueError(f"constraints or grid use {min(unknown)!r}, which is neither a dim nor a constant")
        if any(form.form in ("programs", "waves", "tail") for form in self.features) and not self.grid:
            raise ValueError("features are of the grid, and there is none")

    def order(self, shape: Mapping[str, int]) -> Iterator[Configuration]:
        """The legal candidates at a shape, the one that is expected to be fastest first. Each is judged when it is its
        turn: who needs the first pays for one."""
        bound = self.space.bind(shape)
        try:
            return (config for config in self._ordered(bound, shape, self.candidates) if _holds(bound, config))
        except ExpressionError:
            # A grid that illegal candidates cannot have, as where it divides by what a constraint forbids to be 0.
            legal = [config for config in self.candidates if _holds(bound, config)]
        try:
            return iter(self._ordered(bound, shape, legal))
        except ExpressionError:
            return iter(())

    def _ordered(self, bound: Space, shape: Mapping[str, int], configs: Sequence[Configuration]) -> list[Configuration]:
        if not configs:
            return []
        rows = feature_rows(self.features, bound, self.grid, shape, configs)
        expected = self.forest.predict(rows)
        # A stable sort: of configurations that the trees do not tell apart the earlier candidate is taken everywhere.
        return [configs[place] for place in expected.argsort(kind="stable")]

    def best(self, shape: Mapping[str, int]) -> Configuration | None:
        """The candidate that is expected to be fastest at a shape; None where none is legal and known to be right."""
        return next(self.answers(shape), None)

    def answers(self, shape: Mapping[str, int]) -> Iterator[Configuration]:
        """Those of :meth:`order` that are known to be right at a shape."""
        return (config for config in self.order(shape) if self._is_right(config, shape))

    def _is_right(self, config: Configuration, shape: Mapping[str, int]) -> bool:
        wanted = [shape[dim] for dim in self.dims]
        known = self.right_at[self.candidates.index(config)] if self.right_at else ()
        return any(all(size <= most for size, most in zip(wanted, sizes, strict=True)) for sizes in known)


def _holds(bound: Space, config: Configuration) -> bool:
    try:
        return bound.allows(config)
    except ExpressionError:
        # Such as a division by a size of 0: what cannot be judged is not offered.
        return False
