"""Puts deuteron under Triton's name, with what Triton's tests import besides, in this process and in its children."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType

from stand_ins import ADAPTED, adapt, supply

from deuteron.compat.triton import install

#: Modules of Triton's package that are helpers of its tests, read from the checkout where the alias has none: they
#: convert arrays and name skips.
HELPERS = {
    "triton._internal_testing": "python/triton/_internal_testing.py",
}
#: The start-up file of Python processes that tests start.
CHILD = """import sys
from pathlib import Path
sys.path.append({here!r})
from names import put_in_place
put_in_place(Path({checkout!r}))
"""


@cache
def put_in_place(checkout: Path) -> tuple[str, ...]:
    """Make ``import triton`` give deuteron, once in a process; returns the names that had to be supplied."""
    install()
    supplied = supply()
    sys.meta_path.append(HelperFinder(checkout))
    return (*supplied, ADAPTED)


def for_children(folder: Path, checkout: Path) -> None:
    """Write a ``sitecustomize`` into ``folder``, which belongs on their PYTHONPATH."""
    here = str(Path(__file__).resolve().parent)
    (folder / "sitecustomize.py").write_text(CHILD.format(here=here, checkout=str(checkout)))


class HelperFinder(MetaPathFinder):
    """Finds the helpers of the tests in the checkout when somebody imports them: they import torch, which takes longer
    than all else that the many small processes of some tests do."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where the helper ``name`` is; None for any other module."""
        file = self._checkout / HELPERS.get(name, "")
        return importlib.util.spec_from_loader(name, _Loader(name, str(file))) if file.is_file() else None


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if hasattr(module, "torch_dtype_name"):
            adapt(module)
