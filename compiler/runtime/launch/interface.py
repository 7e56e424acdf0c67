"""What everything has that is launched on a grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any


class KernelInterface:
    """Kernels and decorators around them, ours and those that libraries write, which define :meth:`run`."""

    @abstractmethod
    def run(self, *args: object, grid: Any, warmup: bool = False, **kwargs: object) -> object:
        """Launch on a grid, or only compile when ``warmup`` is set."""

    __iter__ = None  # a grid is no index: Python would count up for ever

    def __getitem__(self, grid: Any) -> Callable[..., object]:
        """Ready to be called with the arguments of a launch."""
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def warmup(self, *args: object, grid: Any = (1,), **kwargs: object) -> object:
        """Compile without launching."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)
