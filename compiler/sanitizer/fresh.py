"""Arrays that nobody has written yet.

Whether the host has written an array cannot be seen, only what is in it: a fresh array is filled with a pattern of
random bytes that differs from place to place. Eight bytes that still hold it are never-written, unless a kernel wrote
them, which is seen. So one element that the host writes makes the aligned eight bytes around it count as written, and
nothing that the host has written counts as never-written (but for one case in 2**64).
"""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..targets.interpreter.numbers import Array
from .shadow import Region

_WORD = 8
#: Modules that fill what they make.
_INSIDE = ("numpy", "deuteron.compiler.targets", "deuteron.compiler.sanitizer")


class FreshArray:
    """The bytes of one array that was made without contents."""

    def __init__(self, array: Array, seed: int) -> None:
        self.start = int(array.ctypes.data)
        count = array.nbytes // _WORD * _WORD  # what is left over counts as written
        self.pattern = np.frombuffer(np.random.default_rng(seed).bytes(count), np.uint8)
        self.undefined = np.ones(count, np.bool_)
        self._bytes(array)[:] = self.pattern

    def _bytes(self, array: Array) -> Array:
        return array.reshape(-1).view(np.uint8)[: len(self.pattern)]

    def look(self, bytes_now: Array) -> None:
        """Take out the words that the host has changed."""
        changed = self.undefined & (bytes_now != self.pattern)
        words = changed.reshape(-1, _WORD).any(axis=1)
        self.undefined &= ~words.repeat(_WORD)


class FreshArrays:
    """All arrays known to have begun without contents, as long as they live."""

    def __init__(self) -> None:
        self._seeds = itertools.count()
        self._arrays: dict[int, tuple[weakref.ref[Array], FreshArray]] = {}

    def add(self, array: Array) -> Array:
        """Fill ``array`` with a pattern and remember it; returns it. Left alone are arrays that are not contiguous, and
        dtypes in which not every pattern of bits is a value (booleans, text, objects)."""
        numeric = array.dtype.kind in "iufc" or (array.dtype.kind == "V" and array.dtype.fields is None)
        if not numeric or array.dtype.hasobject or not array.nbytes or not array.flags.c_contiguous:
            return array
        key = id(array)
        made = FreshArray(array, next(self._seeds))
        self._arrays[key] = weakref.ref(array, lambda _: self._arrays.pop(key, None)), made
        return array

    def mark(self, regions: list[Region]) -> None:
        """Tell regions which of their cells nobody has written."""
        for reference, fresh in list(self._arrays.values()):
            array = reference()
            if array is not None:
                fresh.look(fresh._bytes(array))
                for region in regions:
                    region.mark_undefined(fresh.start - region.start, fresh.undefined)

    def learn(self, regions: list[Region]) -> None:
        """Take out what kernels have written by now."""
        for _, fresh in list(self._arrays.values()):
            for region in regions:
                if region.undefined is not None:
                    offset = fresh.start - region.start
                    fresh.undefined &= region.undefined_bytes(offset, len(fresh.undefined))

    @contextmanager
    def following(self) -> Iterator[None]:
        """Know what ``np.empty`` and ``np.empty_like`` make inside a ``with`` block, but for NumPy's own use and the
        interpreter's."""
        before = {name: getattr(np, name) for name in ("empty", "empty_like")}
        for name, function in before.items():
            setattr(np, name, self._remembering(function))
        try:
            yield
        finally:
            for name, function in before.items():
                setattr(np, name, function)

    def _remembering(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return self.add(made) if type(made) is np.ndarray and not caller.startswith(_INSIDE) else made

        return make
