"""What a launch runs once its variant is known."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...signature import ArgumentType, is_hidden
from .compiled import CompiledKernel, compile_variant
from .grid import grid_of
from .hooks import LaunchEvent, installed, launch_with_hooks
from .kernel import Kernel, Launch

Pick = Callable[[tuple[Any, ...]], tuple[Any, ...]]


def compile_for_launch(kernel: Kernel, launch: Launch) -> CompiledKernel:
    """The compiled variant of a launch: from this process, the disk cache or the compiler."""
    key = launch.variant.key
    made = kernel.cache.get(key)
    if made is None:
        made = compile_variant(launch.variant)
        made.launch_metadata = kernel.launch_metadata
        kernel.cache[key] = made
    return made


class Launcher:
    """Launches one variant on one device. Called with the grid, the machine values of all parameters that are not
    ``tl.constexpr``, and the arguments as the user gave them."""

    __slots__ = ("_kernel", "_loaded", "_pick", "_name", "_names", "_metadata")

    def __init__(self, kernel: Kernel, launch: Launch, compiled: CompiledKernel) -> None:
        self._kernel = compiled
        self._loaded = compiled.loaded(launch.device)
        shown = [kind for name, kind in launch.signature.items() if not is_hidden(name)]
        count = sum(not p.constexpr for p in kernel.parameters)
        self._pick = _spreader(launch.passed, shown) or _picker(launch.passed, count)
        self._name = kernel.repr(launch) if kernel.repr else compiled.name
        self._names = kernel.arg_names
        self._metadata = kernel.launch_metadata

    def __call__(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> CompiledKernel:
        shape = grid_of(grid)
        if 0 not in shape:
            if installed.hooks:
                self._observed(shape, self._pick(values) if self._pick else values, arguments)
            else:
                pick = self._pick
                self._loaded.launch(shape, values if pick is None else pick(values), None)
        return self._kernel

    def _observed(
        self,
        shape: tuple[int, int, int],
        values: tuple[Any, ...],
        arguments: tuple[object, ...],
    ) -> None:
        loaded = self._loaded
        event = LaunchEvent(
            self._name,
            loaded.device,
            loaded.stream(None),
            shape,
            functools.partial(self._describe, shape, arguments),
        )
        launch_with_hooks(event, lambda: loaded.timed_launch(event, values, None))

    def _describe(self, shape: tuple[int, int, int], arguments: tuple[object, ...]) -> dict[str, object]:
        if self._metadata is None:
            return {}
        bound: Mapping[str, object] = dict(zip(self._names, arguments, strict=True))
        return dict(self._metadata(shape, self._kernel.metadata, bound))


def _spreader(passed: tuple[int, ...], kinds: Sequence[ArgumentType]) -> Pick | None:
    """A picker that spreads the values of descriptors; None where there are none."""
    if not any(kind.block for kind in kinds):
        return None
    items = (f"{'*' * bool(kind.block)}v[{i}]" for i, kind in zip(passed, kinds, strict=True))
    made: Pick = eval(f"lambda v: ({', '.join(items)},)")
    return made


def _picker(passed: tuple[int, ...], count: int) -> Pick | None:
    """A function from all values to those that the variant takes; None when it takes all."""
    if passed == tuple(range(count)):
        return None
    if not passed:
        return lambda values: ()
    if len(passed) == 1:
        (only,) = passed
        return lambda values: (values[only],)
    return operator.itemgetter(*passed)
