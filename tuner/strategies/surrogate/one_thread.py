"""Linear algebra on one thread: matrices of a search are so small that threads cost more than they do.

NumPy's wheels bring an OpenBLAS that starts a thread for each core. Its number of threads can be set while it runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

#: Names of the same two functions, by how the library was built.
SUFFIXES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")


@dataclass(frozen=True)
class Threads:
    """The functions that get and set the number of threads."""

    get: Callable[[], int]
    set: Callable[[int], None]


@contextmanager
def one_thread() -> Iterator[None]:
    """Products and factorisations of NumPy run on the calling thread; nothing changes where NumPy's library is not an
    OpenBLAS of its own wheel. The number is the process's: products of other threads meanwhile have one too."""
    found = _openblas()
    if found is None:
        yield
        return
    before = found.get()
    found.set(1)
    try:
        yield
    finally:
        found.set(before)


@cache
def _openblas() -> Threads | None:
    """The library that NumPy has loaded; opening it again gives the same one."""
    package = Path(np.__file__).parent
    for path in (*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in SUFFIXES:
            get, set_ = (getattr(library, name.format(verb), None) for verb in ("get", "set"))
            if get is not None and set_ is not None:
                get.restype, set_.argtypes, set_.restype = ctypes.c_int, [ctypes.c_int], None
                return Threads(get, set_)
    return None
