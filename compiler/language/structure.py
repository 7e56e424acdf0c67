"""Values of the language that are made of other values: tuples, block pointers, tensor descriptors.

A branch or a loop changes a structure part by part: each part is merged or carried as a variable of its own would be.
What cannot change while a kernel runs, such as the shape of a block, is the structure's form.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar

from ..errors import UnknownName
from .named import field_names, with_items


class Membered(ABC):
    """What kernels may ask by name, and nothing else of the Python object."""

    __slots__ = ()

    #: What it is called in messages, and the names that kernels see.
    kind: ClassVar[str]
    members: ClassVar[tuple[str, ...]] = ()

    def member(self, name: str) -> object:
        """The attribute or method that a kernel calls ``name``; raises UnknownName."""
        if name not in self.members:
            near = difflib.get_close_matches(name, self.members, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has: {', '.join(self.members)}"
            raise UnknownName(f"{self.kind} has no attribute {name!r}", hint=hint)
        return getattr(self, name)


class Structure(Membered):
    """A value that is made of others. Subclasses say in ``__str__`` how messages show it."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> tuple[object, ...]:
        """What it is made of: tensors and compile-time numbers."""

    @property
    def contents(self) -> tuple[object, ...]:
        """All that it holds: its parts, and values of its form that may be large themselves."""
        return self.parts

    @abstractmethod
    def with_parts(self, parts: tuple[object, ...]) -> Structure:
        """The same structure of other parts, which stand in the order of :attr:`parts`."""

    def __repr__(self) -> str:
        return str(self)

    @property
    @abstractmethod
    def form(self) -> Hashable:
        """What has to be equal where two paths meet."""


def parts_of(value: object) -> tuple[object, ...] | None:
    """The parts of a structure or tuple; None for a value that is one piece."""
    if isinstance(value, tuple):
        return value
    return value.parts if isinstance(value, Structure) else None


def rebuilt(like: object, parts: tuple[object, ...]) -> object:
    """A tuple or structure in the form of ``like``."""
    if isinstance(like, Structure):
        return like.with_parts(parts)
    return with_items(like, parts) if isinstance(like, tuple) else parts


def same_form(a: object, b: object) -> bool:
    """Whether two tuples, or two structures, differ in their parts only. The parts' own forms are not compared."""
    if isinstance(a, Structure) and isinstance(b, Structure):
        return type(a) is type(b) and a.form == b.form
    return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) and field_names(a) == field_names(b)
