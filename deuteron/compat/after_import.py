"""Steps that are to follow the import of a module, whoever imports it and whenever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Step = Callable[[ModuleType], None]


def after_import(name: str, step: Step) -> None:
    """Call ``step`` with the module ``name`` as soon as its text has run; now, if it has.

    The module may be on its way in: then something that its text imports has come here.
    """
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Watcher(name, step))
    elif (spec := module.__spec__) is not None and getattr(spec, "_initializing", False):
        _Beginning.wait(spec, lambda: step(module))
    else:
        step(module)


class _Watcher(MetaPathFinder):
    """Finds one module, as Python does, and leaves when it has."""

    def __init__(self, name: str, step: Step) -> None:
        self._name, self._step = name, step

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """How to load the module; None for others."""
        if fullname != self._name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Stepping(spec.loader, self._step)
        return spec


class _Stepping(Loader):
    def __init__(self, loader: Loader, step: Step) -> None:
        self._loader, self._step = loader, step

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._step(module)


class _Beginning(ModuleSpec):
    """The spec of a module whose text runs. The import system keeps that in ``_initializing``, and takes it back when
    the text has ended, well or with an error."""

    @classmethod
    def wait(cls, spec: ModuleSpec, call: Callable[[], None]) -> None:
        """Call back when the text has ended well."""
        waiting = spec.__dict__.setdefault("_waiting", [])
        waiting.append(call)
        spec.__class__ = cls

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and not value:
            object.__setattr__(self, "__class__", ModuleSpec)
            waiting = self.__dict__.pop("_waiting")
            if self.name in sys.modules:  # an error has taken it away
                for call in waiting:
                    call()
