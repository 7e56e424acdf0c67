"""Puts deuteron under Triton's name, with what Triton's tests import besides, in this process and in its children."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from stand_ins import adapt, supply

from deuteron.compat.triton import install

#: Modules of Triton's package that are helpers of its tests, read from the checkout where the alias has none: they
#: convert arrays and name skips.
HELPERS = {
    "triton._internal_testing": "python/triton/_internal_testing.py",
    "triton.tools.mxfp": "python/triton/tools/mxfp.py",
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
    for name, path in HELPERS.items():
        if name not in sys.modules and (checkout / path).is_file():
            _load(name, checkout / path)
    helpers = sys.modules.get("triton._internal_testing")
    return (*supplied, *(adapt(helpers) if helpers else ()))


def for_children(folder: Path, checkout: Path) -> None:
    """Write a ``sitecustomize`` into ``folder``, which belongs on their PYTHONPATH."""
    here = str(Path(__file__).resolve().parent)
    (folder / "sitecustomize.py").write_text(CHILD.format(here=here, checkout=str(checkout)))


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    parent, _, attribute = name.rpartition(".")
    setattr(sys.modules[parent], attribute, module)
    return module
