"""What kernels and the decorators around kernels have in common: they are launched on a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from ...errors import LaunchError
from .bound import Bindable, Relaunch
from .interface import KernelInterface
from .kernel import Kernel, Launch


def check_kernel(fn: object) -> None:
    """Raise LaunchError for a function that is no kernel yet. What libraries put around kernels is theirs to know."""
    if isinstance(fn, FunctionType):
        raise LaunchError(
            f"{fn.__name__} is a plain function, and no kernel", hint="put @jit above it, below other decorators"
        )


class Runner(KernelInterface, Bindable):
    """A decorator around a kernel, or around another such decorator."""

    def __init__(self, fn: Runner | Kernel) -> None:
        check_kernel(fn)
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

    def specialized(self, args: Sequence[object], kwargs: Mapping[str, object], grid: Any = None) -> Launch:
        """What the kernel at the bottom would launch for these arguments, on that grid if one is given; raises
        LaunchError where they do not fit."""
        made: Launch = self.fn.specialized(args, kwargs, grid)
        return made

    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch with these arguments does once everything about them is known."""
        made: Relaunch = self.fn.relauncher(grid, args, kwargs)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.__name__}>"
