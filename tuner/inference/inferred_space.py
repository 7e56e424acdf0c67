"""A space with the reason for everything in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from msgspec import field

from ..codec import Document, Scalar
from ..errors import SpaceError
from ..space import Parameter, Space

#: What a parameter is to a kernel. ``tile``: it sizes tiles, and programs or loops advance by it; ``extent``: it sizes
#: tiles that cover a whole axis, since nothing advances by it; ``step``: loops or programs advance by it, no tile has
#: its size; ``order``: integers of the program's place depend on it, and nothing else; ``schedule``: an option of the
#: compiler; ``flag``: it decides which operations there are; ``value``: anything else; ``unused``: it changes nothing.
Role: TypeAlias = Literal["tile", "extent", "step", "order", "schedule", "flag", "value", "unused"]


class InferredParameter(Document, frozen=True):
    """A parameter with its choices: one where it is left fixed, none where its value is no number or text (``text``
    then shows it)."""

    noun: ClassVar[str] = "inferred parameter"

    name: str
    role: Role
    choices: tuple[Scalar, ...]
    default: Scalar | None
    reason: str
    text: str = ""

    @property
    def searched(self) -> bool:
        """Whether there is something to choose."""
        return len(self.choices) > 1


class FoundConstraint(Document, frozen=True):
    """A constraint in the language of :mod:`~..expression`, and why."""

    noun: ClassVar[str] = "found constraint"

    text: str
    reason: str


class InferredSpace(Document, frozen=True):
    """What may be searched of a kernel on one kind of device.

    ``kind``: cpu or cuda. ``constants``: dims and facts of the device that constraints use, as far as they are known.
    ``configs``: configurations that the kernel's author listed, in terms of the searched parameters; all of them are in
    :meth:`space`. ``notes``: what was looked for and not found.
    """

    noun: ClassVar[str] = "inferred space"

    kernel: str
    target: str
    kind: str
    parameters: tuple[InferredParameter, ...]
    constraints: tuple[FoundConstraint, ...] = ()
    constants: Mapping[str, Scalar] = field(default_factory=dict)
    configs: tuple[Mapping[str, Scalar], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def searched(self) -> tuple[InferredParameter, ...]:
        """The parameters with a choice."""
        return tuple(parameter for parameter in self.parameters if parameter.searched)

    def space(self) -> Space:
        """The space of the searched parameters, constraints not bound; raises SpaceError where there is none."""
        if not self.searched:
            raise SpaceError(
                f"{self.kernel} has nothing to search on {self.target}",
                hint="; ".join(f"{p.name}: {p.reason}" for p in self.parameters) or "it has no constexpr parameter",
            )
        parameters = tuple(
            Parameter(p.name, p.choices, p.choices[0] if p.default is None else p.default) for p in self.searched
        )
        return Space(parameters, tuple(found.text for found in self.constraints))

    def bound(self) -> Space:
        """:meth:`space` with what is known of shape and device; constraints over what is not known are left out."""
        space = self.space()
        known = {*space.names, *self.constants}
        free = space.bind(self.constants).free_names
        if not free:
            return space.bind(self.constants)
        kept = tuple(c for c in space.constraints if not Space(space.parameters, (c,)).free_names - known)
        return Space(space.parameters, kept).bind(self.constants)
