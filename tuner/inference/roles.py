"""From what a parameter changes to what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deuteron.compiler.errors import DeuteronError

from .inferred_space import Role
from .influence import Influence, influence
from .subject import Subject

_HOW = {
    "loop": "a loop steps by it",
    "program": "programs lie so far apart",
    "count": "sizes are divided by it",
    "trips": "a loop runs so often",
}


@dataclass(frozen=True)
class Found:
    """A parameter's role with its reason, and what it changes where that was compared."""

    name: str
    role: Role
    reason: str
    influence: Influence = field(default_factory=Influence)


def roles_of(subject: Subject) -> dict[str, Found]:
    """The role of every constexpr, found by compiling the kernel for two values of it."""
    return {name: _role(subject, name) for name in subject.constexprs}


def _role(subject: Subject, name: str) -> Found:
    value = subject.base[name]
    if name in subject.fixed:
        return Found(name, "value", subject.fixed[name])
    if isinstance(value, bool):
        return Found(name, "flag", "a flag: what it means for results is not known")
    if type(value) is not int:
        return Found(name, "value", "no whole number, so it is no size")
    refused: DeuteronError | None = None
    base = subject.tile({})
    for other in (2 * value, value // 2, value + 1):
        if other == value:
            continue
        try:
            made = subject.tile({name: other})
        except DeuteronError as error:
            refused = refused or error
            continue
        return _of_influence(name, influence(base, made))
    why = "" if refused is None else f": {refused.message.splitlines()[0]}"
    return Found(name, "value", f"no other value compiles beside the others{why}")


def _of_influence(name: str, found: Influence) -> Found:
    walked = " and ".join(text for stride, text in _HOW.items() if stride in found.strides)
    sizes = _sizes(found)
    if found.nothing:
        return Found(name, "unused", "no code changes with it", found)
    if found.axes:
        if found.rewritten:
            return Found(name, "tile", f"{sizes}; other operations are written for other values", found)
        if {"loop", "count"} & found.strides or ("program" in found.strides and (found.bounds or not found.other)):
            return Found(name, "tile", f"{sizes}, and {walked}", found)
        covered = f" of {' and '.join(sorted(found.bounds))}" if found.bounds else ""
        return Found(name, "extent", f"{sizes}, and nothing advances by it: a tile covers a whole axis{covered}", found)
    if found.rewritten:
        return Found(name, "flag", "other operations are written for other values", found)
    if found.hints and not found.strides and not found.other:
        return Found(name, "schedule", "it says to loops how they are scheduled, and nothing else", found)
    if found.strides & {"loop", "trips"} and found.strides & {"loop", "program", "count"}:
        return Found(name, "step", f"{walked}, and no tile has its size", found)
    if found.strides and found.strides <= {"program", "count"}:
        return Found(name, "order", "the place of programs depends on it, and no tile", found)
    return Found(name, "value", walked or "numbers that are computed with depend on it", found)


def _sizes(found: Influence) -> str:
    if found.dot:
        names = {"M": "rows", "N": "columns", "K": "depth"}
        return f"it sizes tiles: {' and '.join(names[axis] for axis in 'MNK' if axis in found.dot)} of tl.dot"
    return "it sizes tiles"


def searched_roles(roles: Mapping[str, Found]) -> list[Found]:
    """The parameters that have a choice by their role."""
    return [found for found in roles.values() if found.role in ("tile", "step", "order")]
