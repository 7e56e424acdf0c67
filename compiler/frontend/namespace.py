"""What names mean inside a kernel.

A kernel sees its parameters and locals, the language, compile-time constants and other jit functions; nothing else of
Python exists. For a function of a running program names resolve against its real globals; for source text they resolve
against the imports, constants and jit functions of that text, which is parsed and never executed.
"""

from __future__ import annotations

import ast
import difflib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..errors import UnknownName
from ..ir.types import Pointer, Scalar
from ..language.builtin import is_builtin
from ..language.constexpr import constexpr, unwrap
from ..language.inline import Inlinable

_POINTERS = "use a tile of pointers, pointer + offsets, with mask= and other="

#: What to write instead of those functions of Triton that do not exist here.
INSTEAD: Mapping[str, str] = {
    "make_block_ptr": _POINTERS,
    "advance": "add to a tile of pointers: pointers += step",
    "make_tensor_descriptor": _POINTERS,
    "load_tensor_descriptor": _POINTERS,
    "store_tensor_descriptor": _POINTERS,
    "dot_scaled": "multiply the operands by their scales, then use tl.dot",
    "inline_asm_elementwise": "write it with functions of tl and libdevice",
    "map_elementwise": "write it with tl.where",
    "sort": "sort on the host, or take the largest element in a loop with tl.max and tl.argmax",
    "topk": "take the largest element in a loop with tl.max and tl.argmax",
    "flip": "load through pointers in the opposite order",
    "gather": "load through pointers, or tl.sum(tl.where(index == position, x, 0), axis)",
    "histogram": "use tl.sum((x[:, None] == bins[None, :]).to(tl.int32), 0) or tl.atomic_add",
}


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModule:
    """A module of the language as kernels see it: a fixed table of names."""

    name: str
    members: Mapping[str, object]

    def member(self, name: str) -> object:
        if name not in self.members:
            raise UnknownName(
                f"{self.name} has no {name!r}",
                hint=INSTEAD.get(name) or suggest(name, self.members),
            )
        return self.members[name]


class Namespace(Protocol):
    """Where a kernel's free names are looked up."""

    def lookup(self, name: str) -> object:
        """The object a free name stands for; KeyError if there is none, UnknownName if it may not be used."""
        ...


def suggest(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known names."""
    close = difflib.get_close_matches(name, list(known), n=3)
    return f"did you mean {' or '.join(close)}?" if close else None


def admit(name: str, value: object) -> object:
    """A live global as kernels may use it; raises UnknownName for what does not belong in a kernel."""
    from .modules import language_module

    if isinstance(value, constexpr):
        return value.value
    if isinstance(value, Inlinable | LanguageModule | Scalar | Pointer) or is_builtin(value):
        return value
    if isinstance(value, types.ModuleType):
        module = language_module(value.__name__)
        if module is not None:
            return module
        raise UnknownName(
            f"the module {name!r} cannot be used inside a kernel",
            hint="kernels use deuteron.language; under TRITON_INTERPRET=1 they run as Python",
        )
    if isinstance(value, type) or callable(value):
        from .modules import LANGUAGE_TYPES

        if value in LANGUAGE_TYPES:
            return value
        raise UnknownName(
            f"{name!r} is Python, not a function of the kernel language",
            hint="decorate it with @deuteron.jit to call it from a kernel",
        )
    raise UnknownName(
        f"the global {name!r} is not known at compile time",
        hint=f"write {name} = tl.constexpr({value!r}), or pass it as a tl.constexpr parameter",
    )


class LiveNamespace:
    """The globals and closure of a function of the running program."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    def lookup(self, name: str) -> object:
        return admit(name, self.raw(name))

    def raw(self, name: str) -> object:
        """The Python object itself; KeyError if there is none."""
        code = self.function.__code__
        if name in code.co_freevars and self.function.__closure__:
            return self.function.__closure__[code.co_freevars.index(name)].cell_contents
        return self.function.__globals__[name]


class TextNamespace:
    """The imports, constants and jit functions at the top level of a source text."""

    def __init__(
        self,
        tree: ast.Module,
        make_function: Callable[[ast.FunctionDef], Inlinable],
        evaluate: Callable[[ast.expr, Namespace], object],
    ) -> None:
        self._make_function = make_function
        self._evaluate = evaluate
        self._known: dict[str, object] = {}
        self._pending: dict[str, ast.FunctionDef | ast.expr] = {}
        for statement in tree.body:
            self._declare(statement)

    def _declare(self, statement: ast.stmt) -> None:
        from .modules import language_module

        match statement:
            case ast.Import(names=names):
                for alias in names:
                    module = language_module(alias.name if alias.asname else alias.name.partition(".")[0])
                    if module is not None:
                        self._known[alias.asname or alias.name.partition(".")[0]] = module
            case ast.ImportFrom(module=str(parent), names=names):
                self._import_from(parent, names)
            case ast.FunctionDef(name=name) if any(_is_jit(d) for d in statement.decorator_list):
                self._pending[name] = statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._pending[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._pending[name] = value
            case _:
                pass  # anything else at the top level is host code, which a kernel cannot see

    def _import_from(self, parent: str, names: list[ast.alias]) -> None:
        from .modules import language_module

        home = language_module(parent)
        for alias in names:
            found = language_module(f"{parent}.{alias.name}")
            if found is None and home is not None and alias.name in home.members:
                self._known[alias.asname or alias.name] = home.members[alias.name]
            elif found is not None:
                self._known[alias.asname or alias.name] = found

    def lookup(self, name: str) -> object:
        if name not in self._known:
            pending = self._pending.pop(name)  # KeyError: unknown; popped first, so a cycle is unknown too
            if isinstance(pending, ast.FunctionDef):
                self._known[name] = self._make_function(pending)
            else:
                self._known[name] = unwrap(self._evaluate(pending, self))
        return self._known[name]


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name in ("jit", "constexpr_function")
