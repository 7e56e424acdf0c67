"""What names mean inside a kernel.

A kernel sees its parameters and locals, the language, compile-time constants and other jit functions; nothing else of
Python exists. For a function of a running program names resolve against its real globals; for source text they resolve
against the imports, constants and jit functions of that text, which is parsed and never executed.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

from ..errors import CompilationError, UnknownName, UnsupportedSyntax
from ..ir.types import Pointer, Scalar
from ..language.aggregate import Aggregate, AggregateType
from ..language.builtin import is_builtin
from ..language.constexpr import constexpr, unwrap
from ..language.dictionaries import mapping
from ..language.extent import extent, gathered
from ..language.inline import ConstexprFunction, Inlinable
from ..language.named import as_tuples, is_named_tuple, with_items
from . import constants, python_math, python_numbers, python_types
from .modules import LANGUAGE_TYPES, LanguageModule, language_module, suggest
from .parsing import place

#: Elements of tuples and strings that operations on the constants of one text may make in all, which takes a second or
#: two: each makes few, but a text has room for a hundred thousand operations.
MOST_ELEMENTS = 1_000_000


class Namespace(Protocol):
    """Where a kernel's free names are looked up."""

    def lookup(self, name: str) -> object:
        """The object a free name stands for; KeyError if there is none, UnknownName if it may not be used."""
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
    plain = value is None or isinstance(value, bool | int | float | str) or python_types.is_dtype(value)
    return value if plain else admit(name, value)


@dataclass(frozen=True, slots=True, repr=False)
class HelperModule:
    """A module of the running program that is not the language, or a class that holds constants as a module does:
    kernels may use its jit functions and constants. As in Triton what a module calls a plain number, string or None is
    a constant, too, such as ``math.pi``; a global of the kernel's own module is one only as ``tl.constexpr``."""

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


class TextNamespace:
    """The imports, constants, jit functions, aggregates and classes of constants at the top level of a source text."""

    def __init__(
        self,
        tree: ast.Module,
        filename: str,
        lines: Sequence[str],
        make_function: Callable[[ast.FunctionDef], Inlinable],
    ) -> None:
        self._filename, self._lines = filename, lines
        self._make_function = make_function
        #: How many names are being made: what one is defined by is made in between.
        self._under_way = 0
        self._elements = 0
        self._known: dict[str, object] = {}
        self._pending: dict[str, ast.FunctionDef | ast.ClassDef | ast.expr] = {}
        for statement in tree.body:
            self._declare(statement)

    def _declare(self, statement: ast.stmt) -> None:
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
            case ast.ClassDef(name=name):
                self._pending[name] = statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._pending[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._pending[name] = value
            case _:
                pass  # anything else at the top level is host code, which a kernel cannot see

    def _import_from(self, parent: str, names: list[ast.alias]) -> None:
        home = language_module(parent)
        for alias in names:
            found = language_module(f"{parent}.{alias.name}")
            if found is None and home is not None and alias.name in home.members:
                self._known[alias.asname or alias.name] = home.members[alias.name]
            elif found is not None:
                self._known[alias.asname or alias.name] = found

    def lookup(self, name: str) -> object:
        """What ``name`` means in a kernel; functions and constants are made when first asked for.

        Raises KeyError where the text has no such name, UnsupportedSyntax where its value is no constant.
        """
        if name not in self._known:
            pending = self._pending.pop(name)  # KeyError: unknown; popped first, so a cycle is unknown too
            self._under_way += 1
            try:
                self._known[name] = self._made(pending)
            except RecursionError:
                if self._under_way > 1:
                    raise  # a class passes over what is no constant, but not over this
                error = UnsupportedSyntax(f"{name!r} is defined by too many other constants, one by the other")
                raise self._placed(error, pending) from None
            except CompilationError as error:
                if error.location is None:
                    self._placed(error, pending)
                raise
            finally:
                self._under_way -= 1
        return self._known[name]

    def count(self, value: object) -> None:
        """Add what an operation made to what all operations on the text's constants have made.

        Raises:
            UnsupportedSyntax: that is more than :data:`MOST_ELEMENTS`.
        """
        self._elements += extent(value)
        if self._elements > MOST_ELEMENTS:
            raise UnsupportedSyntax(f"the constants of the text take more than {MOST_ELEMENTS} elements to make")

    def _made(self, pending: ast.FunctionDef | ast.ClassDef | ast.expr) -> object:
        if isinstance(pending, ast.FunctionDef):
            return self._make_function(pending)
        if isinstance(pending, ast.ClassDef):
            aggregate = any(map(_is_aggregate, pending.decorator_list))
            return self._make_class(pending) if aggregate else self._make_holder(pending)
        return unwrap(evaluate_constant(pending, self))

    def _placed(self, error: CompilationError, node: ast.stmt | ast.expr) -> CompilationError:
        error.place(place(self._filename, self._lines, node), self._lines[node.lineno - 1])
        return error

    def _make_holder(self, node: ast.ClassDef) -> HelperModule:
        """A class that is not for kernels itself: its constants and jit functions are."""
        body: dict[str, object] = {}
        for statement in node.body:
            match statement:
                case ast.FunctionDef(name=name) if any(_is_jit(d) for d in statement.decorator_list):
                    body[name] = self._make_function(statement)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    with suppress(KeyError, CompilationError):  # what is no constant is host code
                        body[name] = constexpr(evaluate_constant(value, self))
                case _:
                    pass
        body = {name: value for name, value in body.items() if not _is_pythons(name)}
        if not body:
            raise KeyError(node.name)  # nothing of it is for kernels
        return HelperModule(type(node.name, (), body))

    def _make_class(self, node: ast.ClassDef) -> AggregateType:
        """The aggregate of a class statement; raises UnsupportedSyntax for what aggregates do not have."""
        annotations: dict[str, object] = {}
        body: dict[str, object] = {"__module__": __name__, "__annotations__": annotations}
        for statement in node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name)) if _is_pythons(name):
                    message = f"the aggregate {node.name} cannot have a field {name!r}: choose another name"
                    raise self._placed(UnsupportedSyntax(message), statement)
                case ast.AnnAssign(target=ast.Name(id=name), annotation=kind, value=value):
                    annotations[name] = self._field_kind(node.name, name, kind)
                    if value is not None:
                        body[name] = evaluate_constant(value, self)
                case ast.FunctionDef(name=name):
                    function = self._make_function(statement)
                    is_property = any(_decorator(d) == "property" for d in statement.decorator_list)
                    body[name] = property(function) if is_property else function  # type: ignore[arg-type]
                case _:
                    pass  # as at the top level, anything else is host code
        try:
            bases = [self.lookup(ast.unparse(base)) for base in node.bases]
            if other := [base for base in bases if not isinstance(base, AggregateType)]:
                raise TypeError(f"it can only inherit from other aggregates, not from {other[0]!r}")
            return AggregateType(node.name, tuple(bases) or (Aggregate,), body, is_text=True)  # type: ignore[arg-type]
        except (KeyError, TypeError) as error:
            raise self._placed(UnsupportedSyntax(f"the aggregate {node.name}: {error}"), node) from error

    def _field_kind(self, aggregate: str, field: str, annotation: ast.expr) -> object:
        """What an annotation stands for. Python executes those that are strings: here they are refused."""
        kind = evaluate_constant(annotation, self)
        if isinstance(kind, str):
            raise UnsupportedSyntax(
                f"the field {field!r} of the aggregate {aggregate} is annotated with a string",
                hint="write the type itself, without quotes",
            )
        return kind


def _is_pythons(name: str) -> bool:
    """Whether Python itself reads an attribute of this name when it makes a class."""
    return name.startswith("__") and name.endswith("__")


def _is_jit(decorator: ast.expr) -> bool:
    return makes_kernel(decorator) or is_compile_time(decorator)


def makes_kernel(decorator: ast.expr) -> bool:
    """Whether a function with this decorator is a kernel, or one that kernels call."""
    return _decorator(decorator) == "jit"


def is_compile_time(decorator: ast.expr) -> bool:
    """Whether a function with this decorator is one of compile-time values."""
    return _decorator(decorator) in ("constexpr_function", "constexpr")


def _is_aggregate(decorator: ast.expr) -> bool:
    return _decorator(decorator) in ("aggregate", "_aggregate")


def _decorator(node: ast.expr) -> str:
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
    if isinstance(namespace, TextNamespace):
        namespace.count(value)
    return value
