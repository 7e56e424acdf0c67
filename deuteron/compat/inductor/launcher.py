"""Launches as Inductor's launchers make them: a grid, a stream, and the arguments that are not compile-time values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deuteron.compiler import CompiledKernel, get_device
from deuteron.compiler.runtime.launch.guards import Guards
from deuteron.compiler.runtime.launch.hooks import installed


def runner(kernel: CompiledKernel, meta: Mapping[str, Any]) -> Callable[..., None]:
    """A function ``(grid_0, grid_1, grid_2, stream, *arguments)`` that launches on the device of ``meta``.

    Inductor knows the types of what it passes, so nothing is checked but the guards of the variant. With hooks
    installed, or scopes inside, a launch goes the usual way.
    """
    device = get_device("cpu" if kernel.kind == "cpu" else f"cuda:{meta.get('device') or 0}")
    loaded = kernel.loaded(device)
    addresses = [name for name, kind in kernel.signature.items() if kind.pointer]
    guards = kernel.metadata.recipe.guards
    holds = Guards(guards, list(kernel.signature)).holds if guards else None
    hooks, scopes = installed, kernel.metadata.recipe.scopes
    read = _reader([name in addresses for name in kernel.signature])

    def run(x: int, y: int, z: int, stream: int, *arguments: Any) -> None:
        values = read(arguments)
        if hooks.hooks or scopes or (holds is not None and not holds(values)):
            kernel.run((x, y, z), *arguments, device=device, stream=stream)
        elif x and y and z:
            loaded.launch((x, y, z), values, stream)

    return run


def _reader(pointers: list[bool]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """The machine values of arguments: addresses of arrays, and numbers as they are."""

    def read(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([value.data_ptr() if array else value for array, value in zip(pointers, arguments, strict=True)])

    return read
