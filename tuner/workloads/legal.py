"""What kernels and their schedules cannot be in a search, said or struck out before anything is compiled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.options import SCHEDULE_OPTIONS

from ..codec import Scalar
from ..errors import SpaceError, WorkloadError
from ..space import Parameter, Space

if TYPE_CHECKING:
    from deuteron.compiler.source.kernel import KernelSource

Choices = tuple[tuple[str, Scalar], ...]


def refuse_variadic(source: KernelSource) -> None:
    """Raise WorkloadError for a kernel with ``*args``: workloads and records describe arguments by name."""
    if source.variadic_name:
        raise WorkloadError(
            f"{source.name} takes *{source.variadic_name}, which a workload cannot describe",
            hint="tune a kernel with a named parameter for each argument",
        )


def strike_illegal(space: Space, source: KernelSource, kind: str) -> Space:
    """``space`` for devices of this kind without the values of schedule options that the compiler refuses for the
    kernel, alone (the choice is left out) or together with the value of another option (a constraint says so).

    Raises:
        SpaceError: an option has no other values; the message says why.
    """
    options = [p for p in space.parameters if p.name in SCHEDULE_OPTIONS]
    if not options:
        return space
    refused = _Refused(source, kind)
    legal = {p.name: _legal(p, refused) for p in options}
    pairs = [pair for p, q in itertools.combinations(legal.values(), 2) for pair in _pairs(p, q) if refused(pair)]
    constraints = [f"not ({a} == {x!r} and {b} == {y!r})" for (a, x), (b, y) in pairs]
    parameters = tuple(legal.get(p.name, p) for p in space.parameters)
    return replace(space, parameters=parameters, constraints=(*space.constraints, *constraints))


def _legal(parameter: Parameter, refused: _Refused) -> Parameter:
    """The parameter with the choices that are possible beside defaults of the other options."""
    kept = tuple(value for value in parameter.choices if not refused(((parameter.name, value),)))
    if not kept:
        error = refused(((parameter.name, parameter.default),))
        raise SpaceError(f"no value of {parameter.name} is possible: {error and error.message}")
    default = parameter.default if parameter.default in kept else kept[0]
    return Parameter(parameter.name, kept, default, parameter.when)


def _pairs(p: Parameter, q: Parameter) -> Iterator[Choices]:
    return (((p.name, x), (q.name, y)) for x in p.choices for y in q.choices)


class _Refused:
    """Why the compiler refuses a kernel with some options, the others at their defaults; None if it does not."""

    def __init__(self, source: KernelSource, kind: str) -> None:
        from deuteron.compiler.gpu.legality import KernelTraits  # lazy: the compiler takes a while to load
        from deuteron.compiler.source.usage import usage_of  # lazy: as above

        self.kind = kind
        self.traits = KernelTraits(waits=usage_of(source).has_while)

    def __call__(self, chosen: Choices) -> DeuteronError | None:
        from deuteron.compiler.gpu.legality import objection  # lazy: as above
        from deuteron.compiler.runtime.variant.variant import make_schedule  # lazy: as above

        try:
            schedule = make_schedule(dict(chosen))
        except DeuteronError as error:
            return error
        return objection(schedule, self.kind, self.traits)
