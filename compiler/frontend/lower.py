"""From a kernel's source to a tile function."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from ..errors import CompilationError, TypeMismatch, UnsupportedSyntax
from ..ir.builder import Builder
from ..ir.core import Block, Function, Value
from ..ir.types import SCALARS, Tile
from ..language.arithmetic import as_tensor
from ..language.context import activate, wrapping
from ..language.descriptors import descriptor_of
from ..language.inline import ConstexprFunction, Inlinable, LibraryFunction
from ..language.named import as_tuples
from ..language.tensor import tensor
from ..language.typed import untyped
from ..printable import shown
from ..signature import ArgumentType, flattened, gathered, is_hidden, parse_argument_type
from ..source.arguments import Argument
from ..source.kernel import KernelSource, source_of
from ..target import Target
from ..tile.control import Yield
from ..tile.passes.records import check_scopes
from . import branches, comprehensions, expressions, loops, statements
from .dispatch import evaluate, execute
from .exits import close, goes_on, leave_function
from .frame import Frame, StepBudget
from .python_calls import evaluated
from .scope import LocalScope

#: The modules whose rules compile statements and expressions; importing them registers the rules.
RULES = (branches, comprehensions, expressions, loops, statements)

#: Deepest chain of inlined calls; the language has no recursion at run time.
MAX_DEPTH = 64


def lower(
    source: KernelSource,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    *,
    debug: bool = False,
    sanitize_overflow: bool = False,
    target: Target | None = None,
    num_warps: int | None = None,
    name: str | None = None,
) -> Function:
    """The tile function of ``source`` for argument types and compile-time values.

    ``signature`` maps run-time parameters to types (``*f32:16``, ``i32``, ``tensordesc<fp16[64, 64]>``); ``constexprs``
    maps every other parameter to its value (defaults fill in). Leaves of tuples are called ``args.0`` and so on. The
    function's parameters are the run-time ones in declaration order, a descriptor's hidden ones after it. ``debug``
    keeps device assertions, ``sanitize_overflow`` asserts that the kernel's own integers do not overflow; ``target`` is
    what the kernel is told that it is compiled for (``tl.target_info``), and ``num_warps`` for how many warps.
    ``name``: of the function, in place of the source's.

    Raises:
        CompilationError: with the place in the user's source.
    """
    source.require_body()
    function = Function(name or source.name)
    compilation = Compilation(Builder(function.body), debug, sanitize_overflow, [source], target, num_warps)
    frame = Frame(source, compilation.builder, compilation.budget)
    given = gathered({**constexprs, **_run_time(function, source, signature)})
    for argument in source.parameters:
        name = argument.name
        frame.scope.names[name] = as_tuples(given[name]) if name in given else _default(source, argument)
    with activate(compilation):
        try:
            returned = run_body(frame)
        except RecursionError:
            raise source.error(f"{source.name} is nested too deeply", source.node) from None
    function.num_warps = compilation.told_warps
    _check_scopes(function, compilation)
    if returned is not None:
        returns = (node for node in ast.walk(source.node) if isinstance(node, ast.Return) and node.value is not None)
        place = next(returns, source.node)
        raise source.error("a kernel does not return a value", place, "store it through a pointer")
    return function


def _check_scopes(function: Function, compilation: Compilation) -> None:
    try:
        check_scopes(function)
    except CompilationError as error:
        if error.location is not None:
            lines = (source.line(error.location) for source in compilation.sources)
            error.place(error.location, next((line for line in lines if line is not None), None))
        raise


def _run_time(function: Function, source: KernelSource, signature: Mapping[str, str]) -> dict[str, object]:
    """What the kernel sees of the arguments that have types; their parameters are added to the function."""
    declared = {argument.name: place for place, argument in enumerate(source.parameters)}

    def place(item: tuple[str, str]) -> tuple[int, ...]:
        name, *path = item[0].split(".")
        return declared[name], *map(int, path)

    made: dict[str, object] = {}
    for name, text in sorted(((n, t) for n, t in signature.items() if not is_hidden(n)), key=place):
        kind = parse_argument_type(text)
        if kind.is_one:
            made[name] = 1
            continue
        values = [tensor(function.add_parameter(n, k.tile, k.divisibility)) for n, k in flattened(name, kind).items()]
        made[name] = argument_of(kind, values)
    return made


def argument_of(kind: ArgumentType, values: Sequence[tensor]) -> object:
    """What a kernel sees of an argument whose run-time parameters have ``values``."""
    if kind.block:
        return descriptor_of(values, Tile(SCALARS[kind.dtype], kind.block), kind.padding, kind.tf32)
    return values[0]


def run_body(frame: Frame) -> object:
    """Compile the body of the frame's function; returns what it returns, None where control falls off its end.

    Raises:
        TypeMismatch: what it returns on some paths does not fit what it returns on others.
    """
    node = frame.source.node
    execute(frame, node.body)
    if goes_on(frame, node):
        leave_function(frame, None)
    close(frame, 0, final=True)
    return frame.scope.value


def _default(source: KernelSource, argument: Argument) -> object:
    if argument.default is None:
        kind = "a constexpr value" if argument.constexpr else "a type in the signature"
        raise source.error(f"the parameter {argument.name!r} of {source.name} needs {kind}", source.node)
    return source.default(argument)


class Compilation:
    """The context of one kernel that is being compiled (see language/context.py)."""

    def __init__(
        self,
        builder: Builder,
        debug: bool,
        sanitize_overflow: bool = False,
        sources: Sequence[KernelSource] = (),
        target: Target | None = None,
        num_warps: int | None = None,
    ) -> None:
        self.builder = builder
        self.debug = debug
        self.sanitize_overflow = sanitize_overflow
        self.target = target
        self.num_warps = num_warps
        self.quiet = False
        self.told_warps: int | None = None
        #: The kernel's, and those of the functions that were inlined.
        self.sources = list(sources)
        self.depth = 0
        self.budget = StepBudget()

    def call(self, function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Inline a jit function at the current place; one of compile-time values of the running program is called."""
        if not isinstance(function, Inlinable):
            raise UnsupportedSyntax(
                f"{shown(function)} is not a jit function", hint="write one, decorated with @deuteron.jit"
            )
        if isinstance(function, ConstexprFunction) and function.runs:
            return evaluated(function, args, kwargs)
        callee = source_of(function)
        if self.depth >= MAX_DEPTH:
            raise UnsupportedSyntax(f"{callee.name} is called {MAX_DEPTH} levels deep", hint="kernels cannot recurse")
        self.sources.append(callee)
        names = bind(callee, args, kwargs)
        if callee.compile_time:
            names = {name: untyped(value) for name, value in names.items()}
        frame = Frame(callee, self.builder, self.budget, LocalScope(names))
        self.depth += 1
        location = self.builder.location
        try:
            with wrapping(self) if isinstance(function, LibraryFunction) else nullcontext():
                return run_body(frame)
        finally:
            self.depth -= 1
            self.builder.location = location

    def region(self, function: object, args: Sequence[Value], block: Block) -> None:
        """Compile ``function(*args)`` into ``block``, ended by a yield of its results."""
        with self.builder.into(block):
            result = self.call(function, [tensor(value) for value in args], {})
            parts = result if isinstance(result, tuple) else (result,)
            values: list[Value] = []
            for part in parts:
                if not isinstance(part, tensor | int | float):
                    raise TypeMismatch(f"a combining or mapped function must return tensors, got {shown(part)}")
                values.append(as_tensor(part).value)
            self.builder.emit(Yield(tuple(values)))

    def read(self, value: Value) -> int | float | bool:
        """Raises CompilationError: a compiled kernel's scalars have no value yet."""
        raise CompilationError(
            f"a value of type {value.type} is not known at compile time",
            hint="mark the parameter tl.constexpr, or compute with tl functions",
        )

    def show(self, value: Value) -> None:
        return None

    def report(self, text: str) -> None:
        """Write ``text`` to standard output as it is, without a newline of its own."""
        sys.stdout.write(text)


def bind(callee: KernelSource, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Parameters of a called jit function to values; raises UnsupportedSyntax as Python would raise TypeError.

    Annotations of a called function promise nothing: as in Triton, a tensor may arrive where ``tl.constexpr`` is
    written, and what needs a compile-time value says so itself.
    """
    arguments = callee.arguments
    positional = len(arguments) - len(callee.node.args.kwonlyargs)
    if len(args) > positional and not callee.variadic_name:
        raise UnsupportedSyntax(f"{callee.name}() takes {positional} arguments, {len(args)} were given")
    named = zip(arguments[:positional], args, strict=False)
    bound: dict[str, object] = {a.name: v for a, v in named}
    if callee.variadic_name:
        bound[callee.variadic_name] = tuple(args[positional:])
    for name, value in kwargs.items():
        if name in bound or all(a.name != name for a in arguments):
            problem = "was given twice" if name in bound else "does not exist"
            raise UnsupportedSyntax(f"the argument {name!r} of {callee.name}() {problem}")
        bound[name] = value
    for argument in arguments:
        if argument.name not in bound:
            bound[argument.name] = _call_default(callee, argument)
    return bound


def _call_default(callee: KernelSource, argument: Argument) -> object:
    if argument.default is None:
        raise UnsupportedSyntax(f"{callee.name}() needs the argument {argument.name!r}")
    if callee.defaults is not None:
        return callee.default(argument)
    then = replace(callee, namespace=callee.namespace.at(callee.node))
    return evaluate(Frame(then, Builder(Block()), StepBudget()), argument.default)
