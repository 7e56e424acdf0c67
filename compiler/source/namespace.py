"""What names mean inside a kernel.

A kernel sees its parameters and locals, the language, compile-time constants and other jit functions; nothing else of
Python exists. For a function of a running program names resolve against its real globals; for source text they resolve
against the imports, constants and jit functions of that text, which is parsed and never executed.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from .. import knobs
from ..errors import UnknownName, UnsupportedSyntax
from ..ir.types import Pointer, Scalar
from ..language.aggregate import AggregateType
from ..language.builtin import is_builtin
from ..language.constexpr import constexpr, unwrap
from ..language.dictionaries import mapping
from ..language.extent import gathered
from ..language.inline import ConstexprFunction, Inlinable
from ..language.named import as_tuples, is_named_tuple, with_items
from . import constants, python_math, python_numbers, python_types
from .modules import LANGUAGE_TYPES, LanguageModule, language_module, suggest


class Namespace(Protocol):
    """Where a kernel's free names are looked up."""

    def lookup(self, name: str) -> object:
        """The object a free name stands for; KeyError if there is none, UnknownName if it may not be used."""
        ...

    def at(self, definition: ast.AST) -> Namespace:
        """What names meant where a function was defined, for the defaults of its parameters."""
        ...

    def count(self, value: object) -> None:
        """Note what an operation on constants has made; raises UnsupportedSyntax where that was too much."""
        ...


def admit(name: str, value: object) -> object:
    """A live global, or member of a live module, as kernels may use it; raises UnknownName for what does not belong in
    a kernel."""
    if isinstance(value, constexpr):
        held = value.value
        if isinstance(held, dict):
            return mapping({key: admit_value(name, item) for key, item in held.items()})
        if isinstance(held, list | tuple):
            return as_tuples(held)
        return compile_time(held) if isinstance(held, types.FunctionType) and not is_builtin(held) else held
    if isinstance(value, Inlinable | LanguageModule | Scalar | Pointer) or is_builtin(value):
        return value
    if isinstance(value, types.ModuleType):
        return language_module(value.__name__) or HelperModule(value)
    if python_types.is_limits(value):
        return python_types.limits(value)
    if isinstance(value, type) or callable(value):
        if value in LANGUAGE_TYPES or is_named_tuple(value) or isinstance(value, AggregateType):
            return value
        if isinstance(value, type) and any(map(_is_helper, _members(value))):
            return HelperModule(value)
        home = language_module(getattr(value, "__module__", None) or "")
        if home is not None and isinstance(value, types.BuiltinFunctionType | types.FunctionType):
            return home.member(value.__name__)  # of Python's math, or what the language calls otherwise in a kernel
        raise UnknownName(
            f"{name!r} is Python, not a {'type' if isinstance(value, type) else 'function'} of the kernel language",
            hint=_instead(value),
        )
    if knobs.plain_globals.get() and _is_plain(value):
        return value
    constant = f"write {name.rpartition('.')[2]} = tl.constexpr({value!r}), or pass it as a tl.constexpr parameter"
    raise UnknownName(
        f"Cannot access global variable {name!r}: it is not known at compile time",
        hint="pass it to the kernel as an argument" if getattr(value, "shape", ()) else constant,
    )


def _instead(value: object) -> str | None:
    """What to write for a function or class of Python's: what the language calls so, or a decorator above what is a
    program's own."""
    if isinstance(value, types.FunctionType):
        return "decorate it with @deuteron.jit to call it from a kernel"
    if isinstance(value, type) and "__module__" in vars(value):  # written in Python, too
        return "decorate it with @deuteron.aggregate to make one in a kernel"
    language, name = language_module("deuteron.language"), getattr(value, "__name__", None)
    return f"write tl.{name}" if language is not None and name in language.members else None


def compile_time(function: types.FunctionType) -> Inlinable:
    """The function of compile-time values that a plain one is where ``tl.constexpr`` decorates it, and where another
    such function calls it: one object for each."""
    if function not in _COMPILE_TIME:
        _COMPILE_TIME[function] = ConstexprFunction(function)
    return _COMPILE_TIME[function]


_COMPILE_TIME: WeakKeyDictionary[types.FunctionType, Inlinable] = WeakKeyDictionary()


def _members(holder: type) -> Iterator[object]:
    """What a class and its bases hold; static methods as the functions that they are."""
    for base in holder.__mro__:
        for member in vars(base).values():
            yield member.__func__ if isinstance(member, staticmethod) else member


def _is_helper(member: object) -> bool:
    return isinstance(member, constexpr | Inlinable)


def admit_value(name: str, value: object) -> object:
    """A default value, a Python object that is known from the beginning, as kernels may use it; raises UnknownName."""
    value = as_tuples(unwrap(value))
    if isinstance(value, tuple):
        return with_items(value, [admit_value(name, item) for item in value])
    return value if _is_plain(value) else admit(name, value)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str) or python_types.is_dtype(value)


@dataclass(frozen=True, slots=True, repr=False)
class HelperModule:
    """A module of the running program that is not the language, or a class that holds constants as a module does:
    kernels may use its jit functions and constants. As in Triton what a module calls a plain number, string or None is
    a constant, too, such as ``math.pi``; a global of the kernel's own module is one only as ``tl.constexpr``, or where
    the knob ``plain_globals`` says so."""

    module: types.ModuleType | type

    def __repr__(self) -> str:
        return self.module.__name__

    def member(self, name: str) -> object:
        """What ``module.name`` means in a kernel; raises UnknownName."""
        whole = f"{self.module.__name__}.{name}"
        if not hasattr(self.module, name):
            raise UnknownName(f"{self.module.__name__} has no {name!r}", hint=suggest(name, dir(self.module)))
        value = getattr(self.module, name)
        # A list may become another one by the next launch, without anybody noticing.
        plain = isinstance(self.module, types.ModuleType) and not isinstance(value, list)
        return admit_value(whole, value) if plain else admit(whole, value)


class LiveNamespace:
    """The globals and closure of a function of the running program."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    def lookup(self, name: str) -> object:
        """What ``name`` means in a kernel.

        Raises KeyError where Python has no such global or closure variable, UnknownName where kernels may not use it.
        """
        return admit(name, self.raw(name))

    def at(self, definition: ast.AST) -> LiveNamespace:
        """The same: defaults of functions of the running program are objects."""
        return self

    def count(self, value: object) -> None:
        """Nothing: it is the program's own."""

    def raw(self, name: str) -> object:
        """The Python object itself, of a name or of a path such as ``helpers.WIDTH``; KeyError if there is none."""
        name, *path = name.split(".")
        value = self._global(name)
        for attribute in path:
            try:
                value = getattr(value, attribute)
            except AttributeError:
                raise KeyError(attribute) from None
        return value

    def globals_with(self, name: str) -> dict[str, object] | None:
        """The dictionary in which ``name`` is looked up; None for a path, and for variables of enclosing functions."""
        return None if "." in name or name in self.function.__code__.co_freevars else self.function.__globals__

    def _global(self, name: str) -> object:
        code = self.function.__code__
        if name in code.co_freevars and self.function.__closure__:
            return self.function.__closure__[code.co_freevars.index(name)].cell_contents
        return self.function.__globals__[name]


def is_jit(node: ast.expr) -> bool:
    """Whether kernels may call a function with this decorator."""
    return makes_kernel(node) or is_compile_time(node)


def makes_kernel(node: ast.expr) -> bool:
    """Whether a function with this decorator is a kernel, or one that kernels call."""
    return decorator(node) == "jit"


def is_compile_time(node: ast.expr) -> bool:
    """Whether a function with this decorator is one of compile-time values."""
    return decorator(node) in ("constexpr_function", "constexpr")


def is_aggregate(node: ast.expr) -> bool:
    """Whether a class with this decorator is one that kernels make objects of."""
    return decorator(node) in ("aggregate", "_aggregate")


def decorator(node: ast.expr) -> str:
    """The name of a decorator, without its module and arguments; empty for what has none."""
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else str(getattr(target, "id", ""))


def evaluate_constant(node: ast.expr, namespace: Namespace) -> object:
    """A constant at the top level of a source text: literals, arithmetic, other constants, ``tl.constexpr(...)``,
    Python's functions of numbers.

    Raises:
        KeyError: it needs a name that the text does not define.
        CompilationError: the expression is anything else, or has no value.
    """
    match node:
        case ast.Constant(value=int() | float() | str() | bool() | None):
            return node.value
        case ast.Name(id=name):
            return namespace.lookup(name)
        case ast.Attribute(value=inner, attr=name):
            home = evaluate_constant(inner, namespace)
            if isinstance(home, LanguageModule):
                return home.member(name)
        case ast.Tuple(elts=items):
            return _counted(gathered(evaluate_constant(item, namespace) for item in items), namespace)
        case ast.UnaryOp(op=op, operand=operand):
            return constants.unary(op, evaluate_constant(operand, namespace))
        case ast.BinOp(left=left, op=op, right=right):
            lhs, rhs = (evaluate_constant(side, namespace) for side in (left, right))
            return _counted(constants.binary(op, lhs, rhs), namespace)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if _is_of_python(name, namespace):
            return python_numbers.FUNCTIONS[name](*(evaluate_constant(part, namespace) for part in arguments))
        case ast.Call(func=function, args=[argument], keywords=[]):
            callee, value = (evaluate_constant(part, namespace) for part in (function, argument))
            if callee is constexpr:
                return value
            if callee in python_math.FUNCTIONS.values():
                return callee(value)  # type: ignore[operator]
        case _:
            pass
    raise UnsupportedSyntax(
        f"{ast.unparse(node)!r} is not a constant",
        hint="constants of a kernel text are literals, arithmetic on them and tl.constexpr(...)",
    )


def _is_of_python(name: str, namespace: Namespace) -> bool:
    """Whether a name is one of Python's functions of numbers, and not one of the text."""
    if name not in python_numbers.FUNCTIONS:
        return False
    try:
        namespace.lookup(name)
    except KeyError:
        return True
    return False


def _counted(value: object, namespace: Namespace) -> object:
    namespace.count(value)
    return value
