"""``@heuristics``: compile-time values computed from the arguments of each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import LaunchError
from ..launch.runner import Runner
from ..variant.variant import nearest

if TYPE_CHECKING:
    from ..launch.jit import JITFunction

Rule = Callable[[dict[str, object]], object]


class Heuristics(Runner):
    """A kernel, some of whose compile-time parameters are computed at launch."""

    def __init__(self, fn: Runner | JITFunction, values: Mapping[str, Rule]) -> None:
        super().__init__(fn)
        self.values = dict(values)

    def run(self, *args: object, grid: Any, warmup: bool = False, **kwargs: object) -> object:
        """Compute the values, each of which sees the arguments and the values before it, and launch."""
        for name, rule in self.values.items():
            if name not in self.arg_names:
                raise LaunchError(
                    f"heuristics of {self.__name__}: {name!r} is not a parameter",
                    hint=nearest(name, self.arg_names),
                )
            kwargs[name] = rule({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)


def heuristics(values: Mapping[str, Rule]) -> Callable[[Runner | JITFunction], Heuristics]:
    """Decorator: each of ``values`` is a function from the arguments by name to the value of a parameter."""
    return lambda fn: Heuristics(fn, values)
