"""What kernels and the decorators around kernels have in common: they are launched on a grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .bound import BoundLaunch, Relaunch
from .kernel import Kernel, Launch


class Runner:
    """A decorator around a kernel, or around another such decorator."""

    def __init__(self, fn: Runner | Kernel) -> None:
        self.fn: Any = fn
        self.__name__: str = fn.__name__
        self.__doc__ = fn.__doc__

    @property
    def base_fn(self) -> Kernel:
        """The kernel at the bottom of the chain."""
        return self.fn.base_fn  # type: ignore[no-any-return]

    @property
    def arg_names(self) -> list[str]:
        """Names of the kernel's parameters in order."""
        return self.base_fn.arg_names

    @abstractmethod
    def run(self, *args: object, grid: Any, warmup: bool = False, **kwargs: object) -> object:
        """Launch on a grid, or only compile."""

    def specialized(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Launch:
        """What the kernel at the bottom would launch for these arguments; raises LaunchError where they do not fit."""
        made: Launch = self.fn.specialized(args, kwargs)
        return made

    __iter__ = None  # a grid is no index: Python would count up for ever

    def __getitem__(self, grid: Any) -> Callable[..., object]:
        """Ready to be called with the arguments of a launch."""
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch with these arguments does once everything about them is known."""
        made: Relaunch = self.fn.relauncher(grid, args, kwargs)
        return made

    def bound(self, grid: Any, /, *args: object, **kwargs: object) -> BoundLaunch:
        """The launch of ``kernel[grid](*args, **kwargs)`` as an object that repeats it when called.

        Raises:
            LaunchError: the arguments do not fit.
        """
        return BoundLaunch(self, grid, args, kwargs)

    def warmup(self, *args: object, grid: Any = (1,), **kwargs: object) -> object:
        """Compile without launching."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.__name__}>"
