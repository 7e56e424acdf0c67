"""The command ``deuteron``. Importing this package imports no command and none of what commands need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

#: Exit codes besides 0: a mistake that the message explains, an interrupt, and a reader (head, less) that has gone.
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    A :class:`~deuteron.compiler.errors.DeuteronError` becomes a message with its hint on stderr and the code 2, and so
    does what the system says of a path among the arguments, of a full disk, or of open files and memory of which it has
    no more, or an argument that is no UTF-8 text where text is wanted; anything else that escapes is a defect and keeps
    its traceback.
    """
    try:
        return _main(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:  # wherever it comes: the modules of the commands take a moment to import
        return INTERRUPTED


def _main(given: list[str]) -> int:
    from deuteron.compiler.errors import DeuteronError  # lazy: help starts without the compiler
    from deuteron.compiler.standard_streams import drop_output, is_full, prepare_streams  # lazy: as above

    from .app import run  # lazy: every command's module
    from .errors import remedy_of  # lazy: as above

    prepare_streams()
    try:
        code = run(given)
        sys.stdout.flush()
    except DeuteronError as error:
        _complain(str(error))
        return USER_ERROR
    except BrokenPipeError:
        drop_output(messages=True)
        return BROKEN_PIPE
    except OSError as error:
        if is_full(error):
            drop_output()
            _complain(f"cannot write the output: {error.strerror}")
            return USER_ERROR
        remedy = remedy_of(error)
        if remedy is not None:
            _complain(f"{error.strerror}\nhint: {remedy}")
            return USER_ERROR
        path = error.filename
        if not isinstance(path, str | os.PathLike) or not any(str(path) in argument for argument in given):
            raise
        _complain(f"{path}: {error.strerror}")
        return USER_ERROR
    except UnicodeEncodeError:
        odd = next((argument for argument in given if not _is_text(argument)), None)
        if odd is None:
            raise
        _complain(f"the argument {odd[:80]!r} is not UTF-8 text")
        return USER_ERROR
    return code


def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _complain(text: str) -> None:
    from deuteron.compiler.printable import printable  # lazy: as above
    from deuteron.compiler.standard_streams import drop_output  # lazy: as above

    text = printable(text)
    label = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() else "error:"
    # A message that starts with a place (file:line:column) or shows a caret keeps its columns on lines of its own.
    separator = "\n" if "\n" in text.partition("\nhint: ")[0] else " "
    try:
        print(f"{label}{separator}{text}", file=sys.stderr)
    except OSError:  # nobody reads it, or it has no room: the code remains
        drop_output(messages=True)
