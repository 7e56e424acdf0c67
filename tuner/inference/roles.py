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
class FoundRole:
    """A parameter's role with its reason, and what it changes where that was compared."""

    name: str
    role: Role
    reason: str
    influence: Influence = field(default_factory=Influence)


#: At sizes below this tiles have axes of one element, which need no broadcast: other operations are written.
_TELLING = 16


def probe_of(subject: Subject) -> dict[str, object]:
    """Values to compile for so that sizes show: the base, with sizes of tiles that are small enlarged."""
    probe = dict(subject.base)
    for name, value in subject.base.items():
        if type(value) is int and 0 < value < _TELLING and name not in subject.fixed:
            larger = {**probe, name: _TELLING}
            if subject.compiles(larger) is None and influence(subject.tile(probe), subject.tile(larger)).axes:
                probe = larger
    return probe


def roles_of(subject: Subject, probe: Mapping[str, object]) -> dict[str, FoundRole]:
    """The role of every constexpr, found by compiling the kernel for two values of it, the others as in ``probe``."""
    return {name: _role(subject, probe, name) for name in subject.constexprs}


def _role(subject: Subject, probe: Mapping[str, object], name: str) -> FoundRole:
    value = probe[name]
    if name in subject.fixed:
        return FoundRole(name, "value", subject.fixed[name])
    if isinstance(value, bool):
        return FoundRole(name, "flag", "a flag: what it means for results is not known")
    if type(value) is not int:
        return FoundRole(name, "value", "no whole number, so it is no size")
    refused: DeuteronError | None = None
    base = subject.tile(probe)
    for other in (2 * value, value // 2, value + 1):
        if other == value:
            continue
        try:
            made = subject.tile({**probe, name: other})
        except DeuteronError as error:
            refused = refused or error
            continue
        return _of_influence(name, influence(base, made))
    why = "" if refused is None else f": {refused.message.splitlines()[0]}"
    return FoundRole(name, "value", f"no other value compiles beside the others{why}")


def _of_influence(name: str, found: Influence) -> FoundRole:
    walked = " and ".join(text for stride, text in _HOW.items() if stride in found.strides)
    sizes = _sizes(found)
    if found.nothing:
        return FoundRole(name, "unused", "no code changes with it", found)
    if found.axes:
        if found.rewritten:
            return FoundRole(name, "tile", f"{sizes}; other operations are written for other values", found)
        if {"loop", "count"} & found.strides or ("program" in found.strides and (found.bounds or not found.other)):
            return FoundRole(name, "tile", f"{sizes}, and {walked}", found)
        covered = f" of {' and '.join(sorted(found.bounds))}" if found.bounds else ""
        return FoundRole(
            name, "extent", f"{sizes}, and nothing advances by it: a tile covers a whole axis{covered}", found
        )
    if found.rewritten:
        return FoundRole(name, "flag", "other operations are written for other values", found)
    if found.hints and not found.strides and not found.other:
        return FoundRole(name, "schedule", "it says to loops how they are scheduled, and nothing else", found)
    if found.strides & {"loop", "trips"} and found.strides & {"loop", "program", "count"}:
        return FoundRole(name, "step", f"{walked}, and no tile has its size", found)
    if found.strides and found.strides <= {"program", "count"}:
        return FoundRole(name, "order", "the place of programs depends on it, and no tile", found)
    return FoundRole(name, "value", walked or "numbers that are computed with depend on it", found)


def _sizes(found: Influence) -> str:
    if found.dot:
        names = {"M": "rows", "N": "columns", "K": "depth"}
        return f"it sizes tiles: {' and '.join(names[axis] for axis in 'MNK' if axis in found.dot)} of tl.dot"
    return "it sizes tiles"


def searched_roles(roles: Mapping[str, FoundRole]) -> list[FoundRole]:
    """The parameters that have a choice by their role."""
    return [found for found in roles.values() if found.role in ("tile", "step", "order")]
