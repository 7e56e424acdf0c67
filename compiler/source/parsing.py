"""Source text becomes a syntax tree, or an error with a place."""

from __future__ import annotations

import ast

from ..errors import Location, UnsupportedSyntax

#: Longest source text that is parsed; a real kernel file is a hundredth of this.
MAX_SOURCE_BYTES = 256 * 1024


def parse_text(text: str, filename: str) -> ast.Module:
    """The syntax tree of a text that nobody vouches for.

    Raises:
        UnsupportedSyntax: it is no Python, too long, or nested too deeply.
    """
    if len(text.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        raise UnsupportedSyntax(f"{filename} is longer than {MAX_SOURCE_BYTES} bytes", hint="send the kernel alone")
    try:
        return ast.parse(text, filename)
    except SyntaxError as error:
        where = Location(filename, error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise UnsupportedSyntax(
            f"not valid Python: {error.msg}",
            location=where,
            source_line=(error.text or "").rstrip("\n") or None,
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnsupportedSyntax(f"{filename} cannot be parsed: {error or 'nested too deeply'}") from error
