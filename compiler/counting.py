"""Numbers of things in messages."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """``number`` and the name of such things: ``1 launch``, ``2 launches``."""
    plural = what + ("es" if what.endswith(("ch", "sh", "s", "x")) else "s")
    return f"{number} {what if number == 1 else plural}"
