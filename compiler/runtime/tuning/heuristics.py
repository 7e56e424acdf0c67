"""``@heuristics``: compile-time values and schedule options computed from the arguments of each launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import LaunchError
from ...options import NEUTRAL_OPTIONS, SCHEDULE_OPTIONS
from ..launch.bound import Relaunch
from ..launch.kernel import Kernel, Launch
from ..launch.runner import Runner
from ..variant.variant import nearest
from .checks import by_name

Rule = Callable[[dict[str, object]], object]


class Heuristics(Runner):
    """A kernel, some of whose compile-time parameters and schedule options are computed at launch.

    The constructor takes what Triton's takes, in its order; ``arg_names`` are the kernel's, which is asked for them.
    """

    def __init__(self, fn: Runner | Kernel, arg_names: Sequence[str], values: Mapping[str, Rule]) -> None:
        super().__init__(fn)
        self.values = by_name(values, f"heuristics of {self.__name__}", "give functions of the arguments by name", True)

    def run(self, *args: object, grid: Any, warmup: bool = False, **kwargs: object) -> object:
        """Compute the values, each of which sees the arguments and the values before it, and launch."""
        return self.fn.run(*args, grid=grid, warmup=warmup, **self._with_values(args, kwargs))

    def specialized(self, args: Sequence[object], kwargs: Mapping[str, object], grid: Any = None) -> Launch:
        """The specialisation with the computed values; raises LaunchError for a value of no parameter or option."""
        return super().specialized(args, self._with_values(args, kwargs), grid)

    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch does, with the values that are computed for these arguments."""
        return super().relauncher(grid, args, self._with_values(args, kwargs))

    def _with_values(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        known = (*self.arg_names, *SCHEDULE_OPTIONS, *NEUTRAL_OPTIONS)
        made = dict(kwargs)
        for name, rule in self.values.items():
            if name not in known:
                raise LaunchError(
                    f"heuristics of {self.__name__}: {name!r} is not a parameter or schedule option",
                    hint=nearest(name, known),
                )
            try:
                made[name] = rule({**self.base_fn.named(args), **made})
            except Exception as error:
                error.add_note(f"in the heuristics of {self.__name__}, in what gives {name!r}")
                raise
        return made


def heuristics(values: Mapping[str, Rule]) -> Callable[[Runner | Kernel], Heuristics]:
    """Decorator: each of ``values`` is a function from the arguments by name to the value of a parameter or of a
    schedule option such as ``num_warps``. Raises ArgumentMismatch if they are not."""
    return lambda fn: Heuristics(fn, (), values)  # the kernel is asked for its names when it is launched
