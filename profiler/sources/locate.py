"""Finding libcupti: the knob, one that is loaded already, cuda-pathfinder, and the usual names."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from deuteron.compiler import knobs

from ..errors import CuptiError

_NAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")
_FOLDERS = ("/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64")


def load_cupti(library: str | None = None) -> ctypes.CDLL:
    """Load libcupti: ``library`` (a file or a folder), else the knob ``DEUTERON_CUPTI_LIB_PATH``, else a search.

    A library that another package (PyTorch, say) has loaded comes first: two copies would not see one another.
    Raises CuptiError, naming what was tried.
    """
    chosen = library or knobs.cupti_path.get()
    if chosen:
        path = Path(chosen)
        names = [str(path / name) for name in _NAMES] if path.is_dir() else [str(path)]
        return _first(iter(names), f"no usable libcupti at {path}")
    loaded = _already_loaded()
    if loaded is not None:
        return loaded
    return _first(_candidates(), "libcupti was not found")


def _already_loaded() -> ctypes.CDLL | None:
    for name in _NAMES:
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
    return None


def _candidates() -> Iterator[str]:
    found = _by_pathfinder()
    if found:
        yield found
    yield from _NAMES
    for folder in _FOLDERS:
        yield from (f"{folder}/{name}" for name in _NAMES)


def _by_pathfinder() -> str | None:
    try:
        from cuda import pathfinder
    except ImportError:
        return None
    try:
        path = pathfinder.load_nvidia_dynamic_lib("cupti").abs_path
    except (pathfinder.DynamicLibNotFoundError, RuntimeError, OSError):
        return None
    return str(path) if path else None


def _first(candidates: Iterator[str], failure: str) -> ctypes.CDLL:
    tried: list[str] = []
    for name in candidates:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(f"{name} ({error})" if os.sep in name else name)
    raise CuptiError(
        f"{failure}; tried {', '.join(tried)}",
        hint="pip install nvidia-cuda-cupti, or set DEUTERON_CUPTI_LIB_PATH to the file or its folder",
    )
