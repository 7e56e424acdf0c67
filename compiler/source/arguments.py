"""The parameters that a kernel declares."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of a kernel as it is declared. ``variadic``: it is ``*name``, a tuple, by default an empty one."""

    name: str
    constexpr: bool
    annotation: str | None
    default: ast.expr | None
    variadic: bool = False

    @property
    def has_default(self) -> bool:
        """Whether the declaration gives a default, be it None."""
        return self.default is not None

    @staticmethod
    def declared(node: ast.arg, default: ast.expr | None, variadic: bool = False) -> Argument:
        """What a parameter of a ``def`` declares."""
        return Argument(node.arg, _is_constexpr(node.annotation), _text(node.annotation), default, variadic)


def _text(annotation: ast.expr | None) -> str | None:
    if annotation is None:
        return None
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value
    return ast.unparse(annotation)


def spelled(annotation: object) -> str:
    """An annotation object as the text that it was."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _is_constexpr(annotation: ast.expr | None) -> bool:
    return (_text(annotation) or "").rpartition(".")[2] == "constexpr"
