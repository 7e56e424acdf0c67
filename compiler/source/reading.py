"""What a function reads of what is around it, whether it is a kernel or runs as Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from ..errors import CompilationError, UnknownName
from .namespace import HelperModule, Namespace


class Reading(ABC):
    """A function whose identity is its text, what the names in it stand for and its defaults."""

    name: str
    namespace: Namespace

    @property
    def runs(self) -> bool:
        """Whether it runs as Python."""
        return False

    @property
    @abstractmethod
    def text(self) -> str:
        """What it does, as text that is the same in every process."""

    @property
    @abstractmethod
    def free_names(self) -> set[str]:
        """Names that it reads and that the namespace says the meaning of."""

    @property
    def local_names(self) -> set[str]:
        """Those among them that may be variables of its own, too."""
        return set()

    @property
    @abstractmethod
    def attributes(self) -> dict[str, set[str]]:
        """What it reads of every path, such as ``WIDTH`` of ``helpers.sizes``."""

    @abstractmethod
    def default_values(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """The parameters that have a default, with what says it or raises CompilationError."""

    def captured(self) -> Iterator[tuple[str, object]]:
        """Free names that resolve, with what they stand for; members of modules as ``module.name``."""
        for name in sorted(self.free_names):
            try:
                value = self.namespace.lookup(name)
            except (KeyError, UnknownName):
                continue  # a Python builtin, or an error that the compilation will locate
            except CompilationError:
                if name in self.local_names:
                    continue  # a variable, if no path reads it before it is assigned
                raise
            if isinstance(value, HelperModule):
                yield from self._members(name, value)
            else:
                yield name, value

    def _members(self, path: str, module: HelperModule) -> Iterator[tuple[str, object]]:
        """The members that it uses of a module that it calls ``path``, and of modules inside."""
        for attribute in sorted(self.attributes.get(path, ())):
            try:
                value = module.member(attribute)
            except UnknownName:
                continue  # an error that the compilation will locate
            if isinstance(value, HelperModule):
                yield from self._members(f"{path}.{attribute}", value)
            else:
                yield f"{path}.{attribute}", value
