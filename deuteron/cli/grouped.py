"""Options that several commands share: the fields of a dataclass, which a command takes as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter
from typing import Any, get_type_hints


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclass parameters, each ``Annotated`` as typer wants it, in their place."""
    declared = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {p.name: p.annotation for p in declared if is_dataclass(p.annotation)}
    flat = [q for p in declared for q in (_parameters(p.annotation) if p.name in groups else [p])]

    def call(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__annotations__ = {p.name: p.annotation for p in flat}
    call.__signature__ = inspect.Signature([p.replace(kind=Parameter.KEYWORD_ONLY) for p in flat])  # type: ignore[attr-defined]
    return call


def _parameters(kind: Any) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=_default(f), annotation=hints[f.name]) for f in fields(kind)
    ]


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return Parameter.empty if field.default is MISSING else field.default
