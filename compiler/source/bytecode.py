"""The code of Python functions: what tells one from another, the same in every process of one Python, and what it
reads. Nothing here runs it."""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import types
from collections.abc import Iterator
from contextlib import suppress

from .identity import float_text

#: What ``from __future__ import`` sets for all the functions of a file.
_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
#: Of globals, of variables of enclosing functions, and of either in the body of a class.
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
_READS_GLOBAL = _READS - {"LOAD_DEREF", "LOAD_CLASSDEREF"}
_MEMBERS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def code_text(code: types.CodeType) -> str:
    """What ``code`` does, as text: its instructions and what they use, not where it was written."""
    parts = (
        code.co_name,
        code.co_code.hex(),
        code.co_exceptiontable.hex(),
        code.co_flags & ~inspect.CO_NESTED,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars),
        _constant_text(code.co_consts),
    )
    return f"code {parts}"


def _constant_text(value: object) -> str:
    if isinstance(value, types.CodeType):
        return code_text(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant_text, value))})"
    if isinstance(value, frozenset):  # whose order is another one in each process
        return f"{{{', '.join(sorted(map(_constant_text, value)))}}}"
    if isinstance(value, complex):
        return f"complex {float_text(value.real)} {float_text(value.imag)}"
    return f"float {float_text(value)}" if isinstance(value, float) else f"{type(value).__name__} {value!r}"


def globals_of(code: types.CodeType) -> Iterator[str]:
    """The globals that the code reads, in functions inside it, too."""
    for one in _nested(code):
        for instruction in dis.get_instructions(one):
            if instruction.opname in _READS_GLOBAL:
                yield instruction.argval


def attributes_of(code: types.CodeType) -> dict[str, set[str]]:
    """What the code reads of every path that begins with a global or a variable of an enclosing function, such as
    ``WIDTH`` of ``helpers.sizes``."""
    found: dict[str, set[str]] = {}
    for one in _nested(code):
        path = ""
        for instruction in dis.get_instructions(one):
            if instruction.opname in _READS:
                path = instruction.argval
            elif path and instruction.opname in _MEMBERS:
                found.setdefault(path, set()).add(instruction.argval)
                path = f"{path}.{instruction.argval}"
            elif instruction.opname != "EXTENDED_ARG":
                path = ""
    return found


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def is_code_of(code: types.CodeType, definition: ast.FunctionDef) -> bool:
    """Whether ``definition``, without its decorators, is what ``code`` was made of."""
    with suppress(SyntaxError, ValueError, RecursionError):  # text of another file
        made = compile(_around(definition, code), "<text>", "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)
        return code_text(code) in (code_text(one) for one in _nested(made) if one.co_name == code.co_name)
    return False


def _around(definition: ast.FunctionDef, code: types.CodeType) -> ast.Module:
    """``definition`` in a module, in a function that has the variables of enclosing functions that ``code`` reads."""
    if not code.co_freevars:
        return ast.Module([definition], [])
    module = ast.parse(f"def enclosing({', '.join(code.co_freevars)}): global {definition.name}")
    (enclosing,) = (node for node in module.body if isinstance(node, ast.FunctionDef))
    if definition.name in code.co_freevars:  # it calls itself; otherwise its name is that of a global
        enclosing.body.clear()
    enclosing.body.append(definition)
    return module
