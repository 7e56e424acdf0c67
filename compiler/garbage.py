"""When Python may look for garbage."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
#: How many are inside, of all threads, and whether Python looked before the first came.
_inside = 0
_looked = True


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Python looks for no garbage meanwhile; it does again, if it did before, when the last thread has left."""
    global _inside, _looked
    with _lock:
        if not _inside:
            _looked = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside = max(_inside - 1, 0)  # of one who was here at a fork the child knows nothing
            if not _inside and _looked:
                gc.enable()


def _after_fork() -> None:
    """The other threads are not in the child, and nobody holds its lock."""
    global _lock, _inside
    _lock = threading.Lock()
    if _inside and _looked:
        gc.enable()
    _inside = 0


os.register_at_fork(after_in_child=_after_fork)
