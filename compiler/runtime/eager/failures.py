"""What a kernel that runs as Python raises: what compiled targets say of the same line, or else what Python says, with
the place and the calls that led there."""

from __future__ import annotations

import ast
import dis
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import NamedTuple

from ...errors import CompilationError, DeuteronError, InterpreterError
from ...source.kernel import KernelSource

#: Where the compiler's own files are, the language among them.
_COMPILER = str(Path(__file__).parents[2]) + os.sep


class Position(NamedTuple):
    """What an instruction was made of: where it begins and ends, by lines of the file, from 1, and columns of UTF-8,
    from 0."""

    begin: tuple[int, int]
    end: tuple[int, int]


def position_of(code: CodeType, instruction: int) -> Position:
    """Where the instruction at this offset of ``code`` stands, as far as Python was told to know it."""
    line, end_line, column, end_column = next(islice(code.co_positions(), instruction // 2, None))
    begin = line or code.co_firstlineno, column or 0
    return Position(begin, (end_line or begin[0], end_column or sys.maxsize))


def explained(
    error: Exception, function_of: Callable[[CodeType], FunctionType | None], lower: Callable[[], object]
) -> Exception:
    """What to raise in place of ``error``, which a running kernel has raised; with its traceback.

    ``function_of`` gives the functions of the kernel language that code belongs to; ``lower`` compiles the kernel, to
    see what is wrong with it.
    """
    if isinstance(error, DeuteronError) and not isinstance(error, CompilationError):
        return error
    made = _as_compiled(error, lower) or _placed(error, function_of)
    if not isinstance(error, CompilationError):
        made.__cause__ = error
    return made.with_traceback(error.__traceback__)


def _as_compiled(error: Exception, lower: Callable[[], object]) -> CompilationError | None:
    """The error that the kernel has when it is compiled, if it is where the program was running: there may be others,
    since Python can do more than kernels."""
    running = [step for step in _running(error.__traceback__) if not step[0].co_filename.startswith(_COMPILER)]
    if not running or _raises(error):
        return None
    code, at = running[-1]
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            lower()
    except CompilationError as found:
        where = found.location
        if where is not None and where.file == code.co_filename:
            before = (found.source_line or "")[: where.column]
            return found if at.begin <= (where.line, len(before.encode())) <= at.end else None
    except Exception:  # the kernel fails already; whatever else is wrong is not what is asked
        pass
    return None


def _raises(error: Exception) -> bool:
    """Whether the program has a ``raise`` there, which compiled kernels lack: it says itself what is wrong."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or isinstance(error, AssertionError):
        return False
    code = last.tb_frame.f_code
    return code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"] and not code.co_filename.startswith(_COMPILER)


def _placed(error: Exception, function_of: Callable[[CodeType], FunctionType | None]) -> CompilationError:
    """``error`` at the innermost place in a function of the kernel language, and as the functions around it have it."""
    made = error if isinstance(error, CompilationError) else InterpreterError(f"{type(error).__name__}: {error}")
    steps = [(function, at) for code, at in _running(error.__traceback__) if (function := function_of(code))]
    for function, at in reversed(steps):
        try:
            source = KernelSource.from_function(function)
        except CompilationError:  # it has no text
            continue
        line, column = at.begin
        node = ast.Pass(lineno=line - source.first_line + 1, col_offset=column - source.indent)
        made = source.located(made, node)
    return made


def _running(traceback: TracebackType | None) -> Iterator[tuple[CodeType, Position]]:
    """Where each function stood, the outermost first."""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield code, position_of(code, traceback.tb_lasti)
        traceback = traceback.tb_next
