"""Optional packages as tests see them."""

from __future__ import annotations

import importlib


def loads(package: str) -> bool:
    """Whether ``package`` is installed and finds the system's libraries that it needs."""
    try:
        importlib.import_module(package)
    except (ImportError, OSError):
        return False
    return True
