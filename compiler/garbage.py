"""When Python may look for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Python looks for no garbage meanwhile; afterwards it does if it did before. Of threads that are here at once the
    first to leave lets it look, so that what many of them leave behind does not add up."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
