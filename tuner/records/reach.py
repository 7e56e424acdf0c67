"""For which other shapes the configuration of a record may be handed out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import ClassVar

from msgspec import field
from msgspec.structs import force_setattr

from ..codec import Count, Document, Scalar
from ..errors import ExpressionError
from ..expression import Expression
from ..space import MAX_CONSTRAINTS, Configuration, Space

#: Of records that were made before larger shapes were tried.
NOT_TRIED = "none was tried"


class Reach(Document, frozen=True, gc=False):
    """What is known of a configuration at other shapes than its own.

    ``constraints``: those of the workload that name a size (:class:`~..expression.Expression` texts; what they say
    changes with the shape), and ``facts``: what else they name, of the dtype and the device. A configuration is legal
    at a shape where all of them are true.

    ``sizes``: by dim the largest size at which the configuration was tried and found right (:mod:`~..evaluate.growth`);
    smaller ones count as right. ``doubts``: why a dim has none. ``together``: whether several dims may be larger than
    its own at the same time.
    """

    noun: ClassVar[str] = "reach"

    constraints: tuple[str, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    sizes: Mapping[str, Count] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    together: bool = False

    def __post_init__(self) -> None:
        if len(self.constraints) > MAX_CONSTRAINTS:
            raise ValueError(f"{len(self.constraints)} constraints; at most {MAX_CONSTRAINTS} can be read")
        for text in self.constraints:
            try:
                Expression.parse(text)
            except ExpressionError as error:
                raise ValueError(f"the constraint {text[:80]!r} cannot be read: {error.message}") from None
        # A hundred thousand records of a service have the same few texts.
        force_setattr(self, "constraints", tuple(map(sys.intern, self.constraints)))

    @staticmethod
    def of(space: Space, dims: Mapping[str, int]) -> Reach:
        """What the constraints of ``space`` say of other shapes: it is bound to the shape ``dims``, and to facts of
        dtype and device."""
        texts = [text for text in space.constraints if Expression.parse(text).names & dims.keys()]
        named = {name for text in texts for name in Expression.parse(text).names}
        known = {name: space.constants[name] for name in space.constants if name in named and name not in dims}
        return Reach(tuple(texts), known)

    def broken(self, config: Configuration, shape: Mapping[str, int]) -> str | None:
        """The constraint that is not true of ``config`` at ``shape``; None where all are. One that cannot be judged
        there, such as a division by a size of 0, counts as not true."""
        names = {**self.facts, **config, **shape}
        return next((text for text in self.constraints if not _is_true(text, names)), None)

    def too_large(self, own: Mapping[str, int], shape: Mapping[str, int]) -> str | None:
        """Why a configuration that is right at ``own`` is not known to be right at ``shape``, in words."""
        larger = [dim for dim, size in shape.items() if size > own[dim]]
        for dim in larger:
            if dim not in self.sizes:
                return f"it is not known to be right for a larger {dim} ({self.doubts.get(dim, NOT_TRIED)})"
            if shape[dim] > self.sizes[dim]:
                return f"it was found right up to {dim}={self.sizes[dim]}, and not beyond"
        if len(larger) > 1 and not self.together:
            return f"it was found right where one of {', '.join(larger)} is larger, not where several are"
        return None


def _is_true(text: str, names: Mapping[str, Scalar]) -> bool:
    try:
        return bool(Expression.parse(text).evaluate(names))
    except ExpressionError:
        return False
