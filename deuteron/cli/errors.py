"""Mistakes on the command line that only show once a command has begun."""

from __future__ import annotations

from deuteron.compiler.errors import DeuteronError


class CommandError(DeuteronError):
    """An argument or option cannot be used as it was given; the message names it."""
