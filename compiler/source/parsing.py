"""Source text becomes a syntax tree, or an error with a place."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import unicodedata
from collections.abc import Sequence

from ..errors import Location, UnsupportedSyntax
from ..python_text import PythonText
from ..syntax import module_tree

#: Longest source text that is parsed; a real kernel file is a hundredth of this.
MAX_SOURCE_BYTES = 256 * 1024
#: Most levels of its syntax tree. What reads a tree calls itself a few times a level, and Python's stack is finite.
MAX_NESTING = 200

_LINE_END = re.compile(r"\r\n|\r|\n")
# Digits of an integer that Python, which refuses more of them in base 10, reads in base 16 and cannot write again.
_MANY_DIGITS = re.compile(r"[0-9a-fA-F_]{1000}")


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a text as Python counts them: a form feed ends none."""
    return tuple(_LINE_END.split(text))


def place(filename: str, lines: Sequence[str], node: ast.stmt | ast.expr) -> Location:
    """Where ``node`` stands in a file with these lines."""
    return Location(filename, node.lineno, characters(lines[node.lineno - 1], node.col_offset))


def characters(line: str, offset: int) -> int:
    """How many characters of ``line`` are before an offset in its UTF-8, such as syntax trees have."""
    return offset if line.isascii() else len(line.encode("utf-8", "replace")[:offset].decode("utf-8", "ignore"))


def as_read(name: str) -> str:
    """A name as Python reads it: one may be written in several ways."""
    return unicodedata.normalize("NFKC", name)


def parse_text(text: str, filename: str) -> ast.Module:
    """The syntax tree of a text that nobody vouches for.

    Raises:
        UnsupportedSyntax: it is no Python, too long, or nested too deeply.
    """
    if len(text.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise UnsupportedSyntax(f"{filename} is longer than {MAX_SOURCE_BYTES} bytes", hint="send the kernel alone")
    try:
        tree = module_tree(text, filename)
    except SyntaxError as error:
        where = Location(filename, error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise UnsupportedSyntax(
            f"not valid Python: {error.msg}",
            location=where,
            source_line=(error.text or "").rstrip("\n") or None,
        ) from error
    except (RecursionError, MemoryError) as error:  # of the parser's own stack; which of them depends on the Python
        raise UnsupportedSyntax(f"{filename} cannot be parsed: nested too deeply") from error
    except ValueError as error:
        raise UnsupportedSyntax(f"{filename} cannot be parsed: {error}") from error
    _check_nesting(tree, filename)
    _check_parameters(tree, filename)
    if _MANY_DIGITS.search(text):
        _check_integers(tree, filename, text)
    return tree


def _check_parameters(tree: ast.Module, filename: str) -> None:
    """Refuse functions with two parameters of one name, which Python notices behind the parser."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.Lambda):
            continue
        given = function.args
        seen: set[str] = set()
        beside = [a for a in (given.vararg, given.kwarg) if a is not None]
        for parameter in (*given.posonlyargs, *given.args, *given.kwonlyargs, *beside):
            if parameter.arg in seen:
                raise UnsupportedSyntax(
                    f"not valid Python: two parameters are called {parameter.arg}",
                    location=Location(filename, parameter.lineno, parameter.col_offset),
                )
            seen.add(parameter.arg)


def definition_of(text: PythonText) -> ast.FunctionDef | None:
    """The ``def`` that the lines of a function are; None where they are anything else. Raises as parse_text."""
    match parse_text(textwrap.dedent("".join(text.lines)), text.filename).body:
        case [ast.FunctionDef() as definition]:
            return definition
        case _:
            return None


def undecorated(definition: ast.FunctionDef) -> ast.FunctionDef:
    """The function itself without its decorators."""
    bare = ast.FunctionDef(
        **{n: getattr(definition, n) for n in definition._fields if n != "decorator_list"},
        decorator_list=[],
    )
    return ast.fix_missing_locations(bare)


def _check_nesting(tree: ast.Module, filename: str) -> None:
    """Level by level, so that no tree is too deep for the check itself."""
    level: list[ast.AST] = [tree]
    for _ in range(MAX_NESTING):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    line = next((node.lineno for node in level if isinstance(node, ast.stmt | ast.expr)), None)
    raise UnsupportedSyntax(
        f"{filename} is nested more than {MAX_NESTING} levels deep",
        hint="split long chains of operators and of elif",
        location=None if line is None else Location(filename, line, 0),
    )


def _check_integers(tree: ast.Module, filename: str, text: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            try:
                str(node.value)
            except ValueError:
                raise UnsupportedSyntax(
                    f"an integer has more than {sys.get_int_max_str_digits()} digits",
                    location=place(filename, lines_of(text), node),
                ) from None
