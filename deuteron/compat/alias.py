"""An import name that stands for other modules: ``import triton`` gives deuteron's.

A module has one object under both names. So state that it keeps, and classes that programs compare, exist once, however
the program imports them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from deuteron.compat.after_import import after_import
from deuteron.compiler import knobs
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.devices import prefer

if TYPE_CHECKING:
    from importlib.metadata import Distribution, DistributionFinder

#: Triton's modules -> ours; what lies below a module lies below ours, too.
ALIASES = {
    "triton": "deuteron.compat.triton",
    "triton.language": "deuteron.language",
    "triton.profiler": "deuteron.profiler",
    "triton.profiler.profile": "deuteron.profiler.api",
    "triton.profiler.proton": "deuteron.profiler.__main__",
    "triton.profiler.scope": "deuteron.profiler.scopes",
    "triton.profiler.state": "deuteron.profiler.states",
    "triton.testing": "deuteron.testing",
    "triton.tools": "deuteron.tools",
}


#: What ``torch.compile`` imports when it is first asked for Inductor, and what is to be installed then.
INDUCTOR, SWITCH = "torch._inductor.compile_fx", "deuteron.compat.inductor"
#: What traces programs before Inductor is asked for: it takes kernels for functions unless a device is known by then.
DYNAMO, TRACING = "torch._dynamo", "deuteron.compat.inductor.tracing"


def install() -> None:
    """Make ``import triton`` give deuteron in this process; doing so twice changes nothing.

    Where the program comes to ``torch.compile`` later, deuteron compiles what Inductor writes, too, as after
    :func:`deuteron.compat.inductor.install`: Inductor would find no Triton.

    Raises:
        DeuteronError: Triton itself is imported already.
    """
    present = sys.modules.get("triton")
    if present is not None and present.__name__ != ALIASES["triton"]:
        raise DeuteronError("triton is imported already", hint="call deuteron.compat.triton.install() before that")
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder(ALIASES))
        after_import(DYNAMO, _serve_dynamo)
        after_import(INDUCTOR, lambda _: _serve_inductor())
    importlib.import_module("triton")
    from deuteron.compat.triton.runtime.driver import current_device  # lazy: that package imports this module

    prefer(current_device)


def install_for_all() -> None:
    """As :func:`install`, also in the Python processes that this one starts: workers of a pool, ranks of a group.

    Raises:
        DeuteronError: Triton itself is imported already.
    """
    install()
    folder = Path(__file__).with_name("started")
    knobs.import_first_from(folder)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # which multiprocessing hands on


def _serve_dynamo(dynamo: ModuleType) -> None:
    importlib.import_module(TRACING).prepare(dynamo)


def _serve_inductor() -> None:
    try:
        importlib.import_module(SWITCH).install()
    except DeuteronError as error:  # the program may get along without
        warnings.warn(f"torch.compile finds no compiler of Triton kernels: {error.message}", stacklevel=2)


class AliasFinder(MetaPathFinder):
    """Finds modules under other names than their own, and what is said of them."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = dict(aliases)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load ``fullname``; None for names that are none of ours, and for modules that do not exist."""
        own = self._own_name(fullname)
        if own is None or (found := importlib.util.find_spec(own)) is None:
            return None
        return ModuleSpec(
            fullname,
            _AliasLoader(own, self._aliases),
            origin=found.origin,
            is_package=found.submodule_search_locations is not None,
        )

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Distribution]:
        """What ``importlib.metadata`` finds: libraries ask it for Triton's version."""
        from deuteron.compat.distribution import TritonDistribution  # lazy: who asks has loaded importlib.metadata

        if context.name is None or context.name.lower() == TritonDistribution.project:
            yield TritonDistribution()

    def _own_name(self, fullname: str) -> str | None:
        known, rest = fullname, ""
        while known not in self._aliases:
            known, dot, last = known.rpartition(".")
            if not dot:
                return None
            rest = f".{last}{rest}"
        return self._aliases[known] + rest


class _AliasLoader(Loader):
    """Gives the module that bears another name."""

    def __init__(self, own: str, aliases: Mapping[str, str]) -> None:
        self._own = own
        self._aliases = aliases
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module under its own name, imported if nobody did so before. What that imported below it is known by both
        names at once: imported later, a submodule would take the place of an attribute of its package that has its
        name, as ``triton.runtime.driver`` is both."""
        module = importlib.import_module(self._own)
        self._spec = module.__spec__
        for alias in self._aliases:  # what the package would import when the name is first used
            package, _, name = alias.rpartition(".")
            if package == spec.name:
                getattr(module, name, None)
        below = f"{self._own}."
        for name in [known for known in sys.modules if known.startswith(below)]:
            sys.modules.setdefault(f"{spec.name}.{name.removeprefix(below)}", sys.modules[name])
        for alias, name in self._aliases.items():
            if name.startswith(below) and name in sys.modules:
                sys.modules.setdefault(alias, sys.modules[name])
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """What ``python -m`` runs under this name; None for a module without Python code."""
        found = importlib.util.find_spec(self._own)
        return found.loader.get_code(self._own) if found and isinstance(found.loader, InspectLoader) else None

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run; the import system has overwritten what the module says about where it came from."""
        module.__spec__ = self._spec
