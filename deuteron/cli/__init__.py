"""The command ``deuteron``. Importing this package imports no command and none of what commands need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

#: Exit codes besides 0: a mistake that the message explains, an interrupt, and a reader (head, less) that has gone.
USER_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    A :class:`~deuteron.compiler.errors.DeuteronError` becomes a message with its hint on stderr and the code 2;
    anything else that escapes is a defect and keeps its traceback.
    """
    from deuteron.compiler.errors import DeuteronError  # lazy: help starts without the compiler

    from .app import run  # lazy: every command's module

    try:
        code = run(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except DeuteronError as error:
        _complain(str(error))
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return code


def _complain(text: str) -> None:
    from deuteron.compiler.printable import printable  # lazy: as above

    text = printable(text)
    label = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() else "error:"
    # A message that starts with a place (file:line:column) or shows a caret keeps its columns on lines of its own.
    separator = "\n" if "\n" in text.partition("\nhint: ")[0] else " "
    print(f"{label}{separator}{text}", file=sys.stderr)
