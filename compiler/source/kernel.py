"""A kernel as source text: where it comes from, its parameters, and its identity."""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import tokenize
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TypeVar

from ..errors import CompilationError, Location, UnknownName, UnsupportedSyntax
from ..language.declared import Initializer
from ..language.inline import ConstexprFunction, Inlinable
from ..python_text import text_of
from .arguments import Argument, spelled
from .dependencies import plain_function
from .modules import suggest
from .namespace import (
    LiveNamespace,
    Namespace,
    admit_value,
    evaluate_constant,
    is_compile_time,
    makes_kernel,
)
from .parsing import as_read, characters, definition_of, lines_of, parse_text, undecorated
from .python_source import python_source
from .reached import Reached
from .reading import Reading
from .scoping import read_before_bound
from .text_namespace import TextNamespace

CompilationErrorT = TypeVar("CompilationErrorT", bound=CompilationError)


#: Most characters of a kernel and of what it reaches, spelled out. Constants are short texts of long values.
MAX_REACHED = 8 << 20


@dataclass(eq=False)
class KernelSource(Reading):
    """One kernel function as text. It is parsed, never executed."""

    name: str
    filename: str
    node: ast.FunctionDef
    namespace: Namespace
    lines: tuple[str, ...]
    first_line: int = 1
    indent: int = 0
    #: Default values of a function of the running program, as they were when it was defined; None: as the text says.
    defaults: Mapping[str, object] | None = None
    #: The parameter whose fields it fills, of what makes an aggregate.
    made: str | None = None
    #: A function of compile-time values: what it names keeps Python's numbers.
    compile_time: bool = False
    #: Only its parameters are known (see :meth:`from_signature`): it cannot be compiled.
    without_body: bool = False

    def makes(self, name: str) -> bool:
        """Whether ``name`` is an aggregate whose fields this function fills."""
        return name == self.made

    @staticmethod
    def from_text(text: str, name: str, filename: str = "<kernel>") -> KernelSource:
        """The jit function ``name`` of a source text.

        Raises:
            UnsupportedSyntax: the text is not Python or is longer than :data:`.parsing.MAX_SOURCE_BYTES`.
            UnknownName: it has no jit function of that name.
        """
        tree = parse_text(text, filename)
        lines = lines_of(text)

        def make(node: ast.FunctionDef) -> Inlinable:
            early = any(is_compile_time(decorator) for decorator in node.decorator_list)
            return TextFunction(KernelSource(node.name, filename, node, namespace, lines, compile_time=early))

        namespace = TextNamespace(tree, filename, lines, make)
        try:
            found = namespace.lookup(as_read(name))
        except KeyError:
            found = None
        if not isinstance(found, TextFunction):
            functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
            kernels = [n.name for n in functions if any(map(makes_kernel, n.decorator_list))]
            listed = f"it has: {', '.join(kernels)}" if kernels else "it has none; kernels are decorated with @jit"
            raise UnknownName(f"{filename} has no jit function {name!r}", hint=suggest(name, kernels) or listed)
        return found.source

    @staticmethod
    def from_file(path: str | Path, name: str) -> KernelSource:
        """The jit function ``name`` of a file, read as text; raises as from_text, and CompilationError if
        unreadable."""
        try:
            with tokenize.open(path) as file:  # decodes as Python does
                text = file.read()
        except (OSError, UnicodeDecodeError, SyntaxError) as error:
            raise CompilationError(f"cannot read {path}: {error}") from error
        return KernelSource.from_text(text, name, str(path))

    @staticmethod
    def from_function(function: types.FunctionType) -> KernelSource:
        """A Python function of the running program; its globals give meaning to its free names.

        Raises:
            CompilationError: its text cannot be read, or is another one by now.
            UnsupportedSyntax: it is not one ``def``.
        """
        original = inspect.unwrap(function)
        try:
            text = text_of(original)
        except OSError as error:
            raise _unavailable(function.__qualname__) from error
        is_lambda = original.__code__.co_name == "<lambda>"  # whose lines may be a def that is given it
        definition = None if is_lambda else definition_of(text)
        if definition is None:
            raise UnsupportedSyntax(f"{function.__qualname__} is not a plain function")
        if definition.name != original.__code__.co_name:
            raise CompilationError(
                f"the source of {function.__qualname__} is not available: {text.filename} has changed since",
                hint="import it again, or run the program again",
            )
        return KernelSource(
            function.__name__,
            text.filename,
            definition,
            LiveNamespace(plain_function(function)),
            tuple(line.rstrip("\r\n") for line in text.lines),
            text.first_line,
            len(text.lines[0]) - len(text.lines[0].lstrip()),
            {p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty},
        )

    @staticmethod
    def from_replaced_text(text: str, function: types.FunctionType) -> KernelSource:
        """A function of the running program with another text: ``text`` is one ``def``, whose free names mean what
        they mean in ``function``. Places in messages count from its first line.

        Raises:
            UnsupportedSyntax: the text is not one function.
        """
        filename = f"<text of {function.__name__}>"
        body = parse_text(text, filename).body
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
            raise UnsupportedSyntax(f"the text of {function.__name__} is not one function")
        return KernelSource(body[0].name, filename, body[0], LiveNamespace(function), lines_of(text))

    @staticmethod
    def from_signature(function: types.FunctionType) -> KernelSource:
        """The parameters of a Python function without text, such as ``exec`` makes: it runs as Python, nothing else."""
        signature = inspect.signature(function)
        parameters = [
            p.replace(
                annotation=p.annotation if p.annotation is p.empty else spelled(p.annotation),
                default=p.empty if p.default is p.empty else None,
            )
            for p in signature.parameters.values()
        ]
        made = signature.replace(parameters=parameters, return_annotation=signature.empty)
        text = f"def {function.__name__}{made}: ...\n"
        (node,) = parse_text(text, function.__code__.co_filename).body
        if not isinstance(node, ast.FunctionDef):
            raise UnsupportedSyntax(f"{function.__qualname__} is not a plain function")
        lines = lines_of(text)
        namespace = LiveNamespace(function)
        return KernelSource(function.__name__, function.__code__.co_filename, node, namespace, lines, without_body=True)

    def require_body(self) -> None:
        """Raises CompilationError where only the parameters are known."""
        if self.without_body:
            raise _unavailable(self.name)

    @cached_property
    def text(self) -> str:
        """The function itself without its decorators, normalised."""
        return ast.unparse(undecorated(self.node))

    @property
    def written(self) -> str:
        """The same as it was written: a name in parentheses may be replaced by any expression."""
        lines = self.lines[self.node.lineno - 1 : self.node.end_lineno]
        return "\n".join(line.removeprefix(lines[0][: self.node.col_offset + self.indent]) for line in lines)

    @cached_property
    def arguments(self) -> list[Argument]:
        """The parameters in order, without ``*args`` (see :attr:`variadic_name`)."""
        return [argument for argument in self.parameters if not argument.variadic]

    @property
    def variadic_name(self) -> str | None:
        """The name of ``*args``; None without."""
        return self.node.args.vararg.arg if self.node.args.vararg else None

    @cached_property
    def parameters(self) -> list[Argument]:
        """The parameters in order, ``*args`` before those that follow it."""
        spec = self.node.args
        if spec.kwarg:
            raise self.error("functions of the kernel language do not take **kwargs", self.node)
        positional = [*spec.posonlyargs, *spec.args]
        defaults = [None] * (len(positional) - len(spec.defaults)) + list(spec.defaults)
        made = [Argument.declared(a, d) for a, d in zip(positional, defaults, strict=True)]
        if spec.vararg:
            made.append(Argument.declared(spec.vararg, ast.Tuple([], ast.Load()), variadic=True))
        return made + [Argument.declared(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]

    @property
    def hash(self) -> str:
        """sha256 over the kernel, every jit function it reaches and what every name in them stands for.

        Raises UnsupportedSyntax where that is more than :data:`MAX_REACHED`.
        """
        return digest(self)

    def default(self, argument: Argument) -> object:
        """What ``argument`` is where nobody passes it; it has a default.

        Raises:
            CompilationError: it is nothing that kernels know.
        """
        if self.defaults is not None:
            return admit_value(argument.name, self.defaults[argument.name])
        if argument.default is None:
            raise KeyError(argument.name)
        try:
            return evaluate_constant(argument.default, self.namespace.at(self.node))
        except KeyError:
            message = f"the default of {argument.name!r} is not known from the text: {ast.unparse(argument.default)}"
            hint = "a text is not executed and knows no imports but the language; write the value, or pass the argument"
            raise self.placed(UnknownName(message, hint=hint), argument.default) from None
        except CompilationError as error:
            raise self.located(error, argument.default) from None

    def default_values(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """The parameters that have a default, with what says it; those of the text may be no constants."""
        for argument in self.arguments:
            if argument.has_default:
                yield argument.name, partial(self.default, argument)

    @cached_property
    def attributes(self) -> dict[str, set[str]]:
        """What the function reads of every path, such as ``WIDTH`` of ``helpers.sizes``."""
        found: dict[str, set[str]] = {}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Attribute) and (path := _path(node.value)) is not None:
                found.setdefault(path, set()).add(node.attr)
        return found

    @cached_property
    def free_names(self) -> set[str]:
        """Names that the function reads and does not bind, or perhaps only afterwards; where it has not, the namespace
        says what they are.
        Defaults are read outside the function, where its own names mean nothing."""
        body, defaults = (
            {n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)}
            for parts in (self.node.body, [a.default for a in self.arguments if a.default is not None])
        )
        early = read_before_bound(self.node.body, {a.name for a in self.parameters})
        return body - self.local_names | early & body | defaults

    @cached_property
    def local_names(self) -> set[str]:
        """Parameters and variables. As in Python a name is one everywhere in the function if it is one somewhere;
        those of a comprehension are its own, and outside it the name may be a global."""
        nodes = [n for s in self.node.body for n in ast.walk(s)]
        own = {id(n) for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in own}
        return stored | {a.name for a in self.arguments} | ({self.variadic_name} if self.variadic_name else set())

    def locate(self, node: ast.AST) -> Location:
        """Where ``node`` stands in the user's file."""
        index = getattr(node, "lineno", 1) - 1
        text = self.lines[index] if index < len(self.lines) else ""  # what was made has no line
        column = characters(text, getattr(node, "col_offset", 0) + self.indent)
        return Location(self.filename, index + self.first_line, column)

    def line(self, location: Location) -> str | None:
        """The source line of a location in this file."""
        index = location.line - self.first_line
        in_file = location.file == self.filename and 0 <= index < len(self.lines)
        return self.lines[index] if in_file else None

    def error(self, message: str, node: ast.AST, hint: str | None = None) -> UnsupportedSyntax:
        """An UnsupportedSyntax at ``node``."""
        return self.placed(UnsupportedSyntax(message, hint=hint), node)

    def placed(self, error: CompilationErrorT, node: ast.AST) -> CompilationErrorT:
        """``error``, found at ``node``. Its note counts lines from the function's first, as Triton's messages do."""
        where = self.locate(node)
        error.place(where, self.line(where))
        error.function = self
        error.add_note(self.counted(node))
        return error

    def located(self, error: CompilationError, node: ast.AST) -> CompilationError:
        """``error`` with the place of ``node``; one that points into a function which is called here says so."""
        if error.location is None:
            return self.placed(error, node)
        if error.function is self or error.function is None:
            return error
        return error.called(self, f"{self.counted(node)}, {self.locate(node)}")

    def counted(self, node: ast.AST) -> str:
        """The place of ``node`` counted from the line of ``def``: ``at 2:4: in kernel``."""
        line = getattr(node, "lineno", 1) - self.node.lineno + 1
        return f"at {line}:{getattr(node, 'col_offset', 0)}: in {self.name}"


class Sourced(Inlinable):
    """A function of the kernel language that carries its own text."""

    @property
    def source(self) -> KernelSource:
        """The text and what it reaches; subclasses define it, here it raises TypeError."""
        raise TypeError(f"{type(self).__name__} must define source")


class TextFunction(Sourced):
    """A jit function of a source text."""

    def __init__(self, source: KernelSource) -> None:
        self._source = source

    @property
    def source(self) -> KernelSource:
        """The text it was made of."""
        return self._source


def _path(node: ast.expr) -> str | None:
    """A name, or a name with attributes, as text; None for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None


def digest(source: Reading) -> str:
    """sha256 over a function, every function that it reaches and what every name in them stands for.

    Raises UnsupportedSyntax where that is more than :data:`MAX_REACHED`.
    """
    made, length = hashlib.sha256(), 0
    for line in Reached(source, reading_of).lines():
        made.update(line.encode() + b"\0")
        length += len(line)
        if length > MAX_REACHED:
            raise UnsupportedSyntax(f"{source.name} and what it reaches have more than {MAX_REACHED} characters")
    return made.hexdigest()


def reading_of(function: Inlinable) -> Reading:
    """What a function is told apart by: its text, or what runs as Python where kernels call it so.

    Raises CompilationError where there is none.
    """
    if isinstance(function, ConstexprFunction) and function.runs:
        return python_source(function.function)
    return source_of(function)


def source_of(function: Inlinable) -> KernelSource:
    """The text of a function of the kernel language; raises CompilationError where there is none."""
    if isinstance(function, Sourced):
        return function.source
    if isinstance(function, Initializer):
        return _making(source_of(function.body))
    python = function.python()
    if python is None:
        raise CompilationError(f"{function!r} has neither text nor a Python function")
    return _parsed(python)


@cache
def _making(source: KernelSource) -> KernelSource:
    """An ``__init__`` whose result is its first argument, with the fields that it got."""
    made = source.arguments[0].name
    last = ast.Return(ast.Name(made, ast.Load()))
    node = copy.copy(source.node)
    node.body = [*node.body, ast.fix_missing_locations(ast.copy_location(last, node.body[-1]))]
    return replace(source, node=node, made=made)


@cache
def _parsed(function: types.FunctionType) -> KernelSource:
    return KernelSource.from_function(function)


def _unavailable(name: str) -> CompilationError:
    return CompilationError(
        f"the source of {name} is not available", hint="define kernels in a file, not in an interactive prompt"
    )
