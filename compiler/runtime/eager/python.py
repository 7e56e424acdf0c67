"""Running a kernel's Python code itself, one program after the other, on NumPy arrays.

This is what TRITON_INTERPRET=1 does: the kernel is ordinary Python, so ``breakpoint()``, ``pdb`` and ``print`` work
inside it. Every function of the language evaluates at once, by the interpreter's rules.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CellType, CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING

from ...errors import LaunchError, Location
from ...frontend.lower import Compilation, argument_of
from ...frontend.python_builtins import PYTHON_BUILTINS
from ...ir.core import Block, Value
from ...language.constexpr import constexpr, unwrap
from ...language.context import activate
from ...language.inline import Inlinable, LibraryFunction
from ...language.tensor import tensor
from ...signature import ArgumentType, flattened, gathered, is_hidden
from ...source.parsing import characters
from ...target import Target
from .failures import explained, position_of
from .numbers import known
from .rewriting import HELPERS, rewritten

if TYPE_CHECKING:
    from ...targets.interpreter import Argument, EagerBuilder, Turn


def run(
    function: FunctionType,
    grid: tuple[int, int, int],
    signature: Mapping[str, ArgumentType],
    arguments: Mapping[str, Argument],
    constexprs: Mapping[str, object],
    *,
    lower: Callable[[], object],
    debug: bool = False,
    sanitize_overflow: bool = False,
    cooperative: bool = False,
) -> None:
    """Call ``function`` once for every program of ``grid``, one after the other; ``cooperative``: they take turns, so
    that they may wait for each other. ``lower`` compiles the kernel: what is wrong with it is told as it is there.

    ``signature`` and ``arguments`` describe the run-time parameters (NumPy arrays and numbers; of a tensor descriptor
    also the hidden ones, of a tuple its leaves), ``constexprs`` all others.

    Raises:
        LaunchError: a cooperative grid has too many programs.
        MemoryAccessError: a program touched memory outside its arrays.
        KernelAssertionError: a tl.device_assert failed and ``debug`` is set, or an integer overflowed under
            ``sanitize_overflow``.
        CompilationError: what compiled kernels do not have either.
        InterpreterError: the kernel's own Python code raised something else, which is its cause.
    """
    from ...targets.interpreter import EagerBuilder, Memory, run_in_turns  # lazy: NumPy, for those who interpret

    memory = Memory()
    python = Python()
    kernel = python.of_kernel(function)
    width, height, depth = grid

    def run_program(number: int, turn: Turn | None) -> None:
        place = number % width, number // width % height, number // (width * height)
        builder = EagerBuilder(memory, place, grid)
        builder.program.turn = turn
        context = EagerContext(builder, debug, sanitize_overflow, python)
        held = {n: tensor(builder.argument(n, signature[n].tile, arguments[n])) for n in arguments}
        values = {
            name: argument_of(kind, [held[n] for n in flattened(name, kind)])
            for name, kind in signature.items()
            if not is_hidden(name)
        }
        with activate(context):
            _call(kernel, gathered({**values, **{name: known(value) for name, value in constexprs.items()}}))

    total = width * height * depth
    try:
        if cooperative:
            run_in_turns(total, run_program)
            return
        for number in range(total):
            run_program(number, None)
    except Exception as error:
        made = explained(error, python.function_of, lower)
        if made is error:
            raise
        raise made from made.__cause__


def _call(kernel: FunctionType, arguments: dict[str, object]) -> None:
    """Call ``kernel`` with arguments by name, of which those before ``*args`` or ``/`` have to be positional."""
    code = kernel.__code__
    names = code.co_varnames
    rest = ()
    if code.co_flags & inspect.CO_VARARGS:
        rest = arguments.pop(names[code.co_argcount + code.co_kwonlyargcount])  # type: ignore[assignment]
    positional = [arguments.pop(name) for name in names[: code.co_argcount]]
    kernel(*positional, *rest, **arguments)


class Python:
    """Functions of kernels as they run: their globals hold plain values instead of constexprs, and the few names of
    Python that the language knows mean what they mean to the compiler (``range`` counts in i32, ``min`` takes
    tiles)."""

    def __init__(self) -> None:
        self._made: dict[FunctionType, FunctionType] = {}
        #: By the identity of code, which its function keeps: codes of two files may be equal.
        self._functions: dict[int, FunctionType] = {}
        self._places: dict[tuple[int, int], Location] = {}

    def __getitem__(self, function: FunctionType) -> FunctionType:
        made = self._made.get(function)
        if made is None:
            made = self._made[function] = _with_plain_globals(function)
        return made

    def of_kernel(self, function: FunctionType) -> FunctionType:
        """The same of a kernel, and of a function that is the program's and not the language's: of those messages give
        the places."""
        made = self[function]
        self._functions[id(made.__code__)] = function
        return made

    def function_of(self, code: CodeType) -> FunctionType | None:
        """The function that runs as ``code``; None of what is not a kernel's."""
        return self._functions.get(id(code))

    def place(self, frame: FrameType | None) -> Location | None:
        """Where the innermost function of the kernel stands, seen from ``frame``."""
        while frame is not None and id(frame.f_code) not in self._functions:
            frame = frame.f_back
        if frame is None:
            return None
        key = id(frame.f_code), frame.f_lasti
        if key not in self._places:
            file, (line, offset) = frame.f_code.co_filename, position_of(frame.f_code, frame.f_lasti).begin
            self._places[key] = Location(file, line, characters(linecache.getline(file, line), offset))
        return self._places[key]


def _with_plain_globals(function: FunctionType) -> FunctionType:
    names = {name: PYTHON_BUILTINS[name] for name in ("range", "min", "max", "abs")}
    names |= {name: unwrap(value) for name, value in function.__globals__.items()} | HELPERS
    code = rewritten(function)
    held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells = [_plain_cell(held[name]) for name in code.co_freevars]
    defaults = tuple(unwrap(d) for d in function.__defaults__ or ())
    # Numbers in the text can be asked for their types. Python 3.14 has small ones in its instructions: those cannot.
    constants = tuple(map(known, code.co_consts))
    made = FunctionType(code.replace(co_consts=constants), names, function.__name__, defaults, tuple(cells) or None)
    made.__kwdefaults__ = {n: unwrap(d) for n, d in (function.__kwdefaults__ or {}).items()}
    return made


def _plain_cell(cell: CellType) -> CellType:
    try:
        held = cell.cell_contents
    except ValueError:  # not assigned yet
        return cell
    return CellType(unwrap(held)) if type(held) is constexpr else cell


class EagerContext:
    """The context of one running program (see language/context.py)."""

    def __init__(self, builder: EagerBuilder, debug: bool, sanitize_overflow: bool, python: Python) -> None:
        self._builder = builder
        self._python = python
        self.debug = debug
        self.sanitize_overflow = sanitize_overflow
        self.target: Target | None = None  # nothing is compiled
        self.num_warps: int | None = None
        self.quiet = False
        self.told_warps: int | None = None

    @property
    def builder(self) -> EagerBuilder:
        """The evaluating builder, told where in the user's file the program stands."""
        self._builder.location = self._python.place(sys._getframe(1))
        return self._builder

    def call(self, function: object, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Run a jit function as Python; raises LaunchError where there is only text."""
        python = function.python() if isinstance(function, Inlinable) else None
        if python is None:
            raise LaunchError(f"{function!r} is source text and does not run as Python")
        found = self._python[python] if isinstance(function, LibraryFunction) else self._python.of_kernel(python)
        return found(*args, **kwargs)

    def region(self, function: object, args: Sequence[Value], block: Block) -> None:
        """A combining region is compiled even here: the reduction's rule evaluates it on whole arrays."""
        compilation = Compilation(self._builder, self.debug)
        with activate(compilation):
            compilation.region(function, args, block)

    def read(self, value: Value) -> int | float | bool:
        """The number that a scalar holds: what Python's if, while and range ask for."""
        return self._builder.item(value)

    def show(self, value: Value) -> str:
        """The elements of a value as NumPy prints them."""
        return str(self._builder.array(value))

    def report(self, text: str) -> None:
        """Write ``text`` to standard output as it is, without a newline of its own."""
        sys.stdout.write(text)
