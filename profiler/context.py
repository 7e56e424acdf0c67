"""The calling thread's place, as sessions see it."""

from __future__ import annotations

from .places import path_in
from .session import RUNNING, registry


def depth(session: int | None = RUNNING) -> int | None:
    """Frames above what the calling thread would record now in a session; None when nothing is profiled."""
    if not registry.sessions or session is None:
        return None
    return len(path_in(registry.select(session)[0]))
