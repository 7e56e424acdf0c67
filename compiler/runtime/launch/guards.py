"""Guards: promises that a variant makes about its arguments, checked before it is launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...errors import LaunchError
from ...launch_recipe import PROGRAMS, Guard
from ..device import DeviceProperties
from ..variant.variant import Variant
from .grid import grid_of
from .host_code import Values, predicate

#: Values as a launch reads them -> values as a variant takes them, where a descriptor is several.
Spread = Callable[[Values], Values]


def programs_per_sm(grid: Sequence[int], sms: int) -> int:
    """What guards about :data:`PROGRAMS` are about, for a launch of this grid on a device with so many SMs."""
    return -(-prod(grid) // sms)


class Guards:
    """The guards of one variant, for values in the order of ``names``, or that ``spread`` brings into this order.

    Where they are ``about_programs``, they look at that number too: :meth:`seen`.
    """

    __slots__ = ("holds", "about_programs", "_names", "_spread", "_places")

    def __init__(self, guards: Sequence[Guard], names: Sequence[str], spread: Spread | None = None) -> None:
        self.about_programs = any(guard.parameter == PROGRAMS for guard in guards)
        if self.about_programs:
            names = [*names, PROGRAMS]
            spread = None if spread is None else _but_the_last(spread)
        hold = predicate(guards, names)
        #: Whether all hold for what is :meth:`seen` of a launch.
        self.holds: Callable[[Values], bool] = hold if spread is None else lambda values: hold(spread(values))
        self._names = names
        self._spread = spread
        self._places = [(guard, list(names).index(guard.parameter)) for guard in guards]

    def seen(self, values: Values, grid: object, device: DeviceProperties) -> Values:
        """What these guards look at: a launch's values, and how many programs that makes for each SM."""
        if not self.about_programs:
            return values
        return (*values, programs_per_sm(grid_of(grid), device.sm_count or 1))

    def broken(self, values: Values) -> tuple[Guard, ...]:
        """Those that do not hold."""
        if self._spread is not None:
            values = self._spread(values)
        return tuple([guard for guard, place in self._places if not guard.holds(values[place])])

    def named(self, values: Values) -> dict[str, object]:
        """What is seen, by name."""
        return dict(zip(self._names, values if self._spread is None else self._spread(values), strict=True))


def _but_the_last(spread: Spread) -> Spread:
    """``spread`` for values that end in one more, which stays as it is."""
    return lambda values: (*spread(values[:-1]), values[-1])


def variant_without(name: str, variant: Variant | None, broken: Sequence[Guard]) -> Variant:
    """The variant of the kernel ``name`` that does without ``broken``.

    Raises:
        LaunchError: there is no source to compile it from.
    """
    if variant is None:
        raise LaunchError(
            f"{name}: the arguments break what the code relies on: {', '.join(map(str, broken))}",
            hint="the kernel came from another process and cannot be compiled for them here: compile it again, or pass "
            "arguments that fit",
        )
    return variant.without(broken)
