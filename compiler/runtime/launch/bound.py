"""Bound launches: a kernel with its grid and its arguments, launched again and again for little more than what the
driver takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...errors import LaunchError
from .compiled import CompiledKernel

#: Launches once, with everything known beforehand.
Relaunch = Callable[[], CompiledKernel | None]


class Called(Protocol):
    """How a kernel is called."""

    @property
    def positional_names(self) -> list[str]:
        """Names of the parameters that take one positional argument each, in order."""
        ...

    @property
    def variadic_name(self) -> str | None:
        """The name of ``*args``; None without."""
        ...


class Binder(Protocol):
    """What can be bound: a kernel, or a decorator around one."""

    __name__: str

    @property
    def base_fn(self) -> Called:
        """The kernel itself."""
        ...

    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch with these arguments does once everything about them is known; compiles, does not launch."""
        ...


class Bindable:
    """Base of binders."""

    def bound(self: Binder, grid: Any, /, *args: object, **kwargs: object) -> BoundLaunch:
        """The launch of ``kernel[grid](*args, **kwargs)`` as an object that repeats it when called.

        Raises:
            LaunchError: the arguments do not fit.
        """
        return BoundLaunch(self, grid, args, kwargs)


class BoundLaunch:
    """A launch that can be repeated; made by ``kernel.bound(grid, *args, **kwargs)``. Calling it launches.

    Binding does once what a launch does every time: it reads the arguments, picks and compiles the variant, checks its
    guards, evaluates the grid and makes descriptors. A call then only asks for the current stream (torch's, so it may
    be captured in a CUDA graph), for hooks, and launches. Nothing that is checked at binding can change under it:
    numbers are kept by value, arrays by the address that they had. The arrays are kept alive, but one whose memory
    moved (a tensor resized in place) must be bound again, and so must everything after a knob or a global that the
    kernel uses was changed. Thread-safe but for :meth:`rebind`.
    """

    __slots__ = ("_kernel", "_grid", "_args", "_kwargs", "_launch")

    def __init__(self, kernel: Binder, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        self._kernel = kernel
        self._grid = grid
        self._args = tuple(args)
        self._kwargs = dict(kwargs)
        self._launch = kernel.relauncher(grid, self._args, self._kwargs)

    def __call__(self) -> CompiledKernel | None:
        """Launch on the current stream; returns what ``kernel[grid](...)`` does."""
        return self._launch()

    def rebind(self, *args: object, **kwargs: object) -> BoundLaunch:
        """Replace arguments: the first ones by position, any by name; the others stay, and a grid that is a function is
        evaluated again. Everything is checked as at binding; where that raises, the launch stays as it was.

        Raises:
            LaunchError: the arguments do not fit.
        """
        called = self._kernel.base_fn
        names = called.positional_names
        if len(args) > len(names) and not called.variadic_name:
            raise LaunchError(f"{self._kernel.__name__} takes {len(names)} arguments, got {len(args)}")
        positional = [*args, *self._args[len(args) :]]
        keywords = {name: value for name, value in self._kwargs.items() if name not in names[: len(args)]}
        for name, value in kwargs.items():
            if name in names[: len(args)]:
                raise LaunchError(f"{self._kernel.__name__}: the argument {name!r} is given twice")
            if name in names[: len(positional)]:
                positional[names.index(name)] = value
            else:
                keywords[name] = value
        self._launch = self._kernel.relauncher(self._grid, positional, keywords)
        self._args, self._kwargs = tuple(positional), keywords
        return self

    def __repr__(self) -> str:
        return f"<BoundLaunch of {self._kernel.__name__}>"
