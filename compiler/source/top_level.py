"""What the statements at the top level of a source text bind, in their order. Nothing is executed.

A name may be bound several times; the last one counts, and for a constant that is made of others what these were then.
What is bound under a condition is not known, but for what is imported from the language: whoever tries to import it, or
has two places to import it from, means the language.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .modules import LanguageModule, language_module

#: What a text defines itself: a function, a class, or the expression of a constant.
Definition: TypeAlias = ast.FunctionDef | ast.ClassDef | ast.expr
#: Names under which programs import the language from modules of their own, such as ``vllm.triton_utils``.
USUAL_NAMES = {"triton": "triton", "tl": "triton.language"}


@dataclass(frozen=True, slots=True)
class Binding:
    """A name, and what it stands for from here on: ``member``, if not None, of the language; what ``definition`` makes;
    what nobody can tell, as ``unsure`` binds it under a condition; or something of Python's that kernels do not see."""

    name: str
    member: object = None
    definition: Definition | None = None
    unsure: ast.stmt | ast.expr | None = None


def bindings_of(statements: Sequence[ast.stmt]) -> Iterator[Binding]:
    """The bindings of the statements, which are all executed."""
    known: set[str] = set()
    for statement in statements:
        for binding in _of_statement(statement, known):
            known.add(binding.name)
            yield binding


def _of_statement(statement: ast.stmt, known: set[str]) -> Iterator[Binding]:
    match statement:
        case ast.Import() | ast.ImportFrom():
            yield from _imported(statement)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield Binding(name, definition=statement)
        case ast.AsyncFunctionDef(name=name):
            yield Binding(name)
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, value)
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            if value is not None:
                yield Binding(name, definition=value)
        case ast.Delete(targets=targets):
            yield from (Binding(target.id) for target in targets if isinstance(target, ast.Name))
        case ast.If(test=test, body=body, orelse=otherwise) if (holds := _truth(test)) is not None:
            yield from bindings_of(body if holds else otherwise)
        case _:
            yield from _conditional(statement, known)


def _imported(statement: ast.Import | ast.ImportFrom) -> Iterator[Binding]:
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            name = alias.asname or alias.name.partition(".")[0]
            yield Binding(name, language_module(alias.name if alias.asname else name))
        else:
            yield Binding(alias.asname or alias.name, _member(statement, alias.name))


def _member(statement: ast.ImportFrom, name: str) -> object:
    """What is imported if it is of the language, None if not."""
    parent = statement.module or ""
    home: LanguageModule | None = language_module(parent)
    found = language_module(f"{parent}.{name}")
    if found is not None:
        return found
    if home is not None:
        return home.members.get(name)
    return language_module(USUAL_NAMES[name]) if name in USUAL_NAMES else None


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[Binding]:
    match target, value:
        case ast.Name(id=name), _:
            yield Binding(name, definition=value)
        case ((ast.Tuple(elts=names) | ast.List(elts=names)), (ast.Tuple(elts=values) | ast.List(elts=values))) if len(
            names
        ) == len(values) and not any(isinstance(item, ast.Starred) for item in (*names, *values)):
            for part, item in zip(names, values, strict=True):
                yield from _assigned(part, item)
        case _:
            yield from (Binding(name, unsure=node) for name, node in _names_in(target))


def _truth(test: ast.expr) -> bool | None:
    """Whether a condition holds in a text that is imported; None where nobody can tell."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return False
        case _:
            return None


def _conditional(statement: ast.stmt, known: set[str]) -> Iterator[Binding]:
    """What a statement binds that may not be executed, or more than once."""
    of_language: set[str] = set()
    for node in _inside(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for binding in _imported(node):
                sure = isinstance(statement, ast.Try) or binding.name not in known
                if binding.member is not None and sure and binding.name not in of_language:
                    of_language.add(binding.name)
                    yield binding
    seen: set[str] = set()
    for name, node in _names_in(statement):
        if name not in of_language and name not in seen:
            seen.add(name)
            yield Binding(name, unsure=node)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what is inside it, but for the insides of functions and classes, in order."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from _inside(child)


def _names_in(node: ast.AST) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
    """Each name that a node binds, with where."""
    for inner in _inside(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name, inner
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, inner
            case ast.Import() | ast.ImportFrom():
                yield from ((binding.name, inner) for binding in _imported(inner))
            case _:
                pass
