"""How the commands of this folder end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from deuteron.compiler.errors import DeuteronError


def exit_status(work: Callable[[], object]) -> int:
    """Run a command's work: 0, or 2 after a mistake that the printed message explains."""
    try:
        work()
    except (DeuteronError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
