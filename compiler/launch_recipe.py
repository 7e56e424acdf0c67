"""What a launch does besides passing arguments: check promises, make descriptors, size the grid.

The compiler writes the recipe, the launcher follows it, and the disk cache keeps it between them; so it names kernel
parameters instead of IR values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .record_buffer import RecordForm

#: An integer that the launcher computes: a number, the name of a kernel parameter, or an operation ("+", "*", "//",
#: "max") on two such expressions.
HostExpression = int | str | tuple[str, "HostExpression", "HostExpression"]


#: What a guard names that is about the size of a launch: programs of the grid for each streaming multiprocessor (SM),
#: rounded up.
PROGRAMS = "programs per SM"


@dataclass(frozen=True, slots=True)
class Guard:
    """A promise about an integer argument, or about the address of an array, that the code relies on; or one about
    :data:`PROGRAMS`, without which the code is right, and other code faster.

    ``multiple``: the value is a multiple of ``value``; ``least``: it is not below ``value``, which is 0 for what must
    not be negative, 1 for the sizes of a :class:`TensorMap`. Where an argument breaks a guard, the launcher compiles
    the variant that does without it.
    """

    parameter: str
    kind: Literal["multiple", "least"]
    value: int

    def holds(self, argument: int) -> bool:
        """Whether ``argument`` keeps the promise."""
        return argument % self.value == 0 if self.kind == "multiple" else argument >= self.value

    def __str__(self) -> str:
        if self.kind == "multiple":
            return f"{self.parameter} % {self.value} == 0"
        return f"{self.parameter} >= {self.value}"


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A TMA descriptor that the launch makes (CUDA driver API, cuTensorMapEncodeTiled).

    Dimensions are listed outermost first, as NumPy's; the last one is contiguous, its stride is 1. ``base``: the
    pointer parameter; ``elem``: the IR name of the element type; ``sizes``: extents of the array, beyond which loads
    give ``padding`` ("zero" or "nan") and stores nothing; ``strides``: in elements; ``box``: extents of one copy;
    ``swizzle``: 32, 64 or 128 bytes, 0 for none.
    """

    base: str
    elem: str
    sizes: tuple[HostExpression, ...]
    strides: tuple[HostExpression, ...]
    box: tuple[int, ...]
    swizzle: int
    padding: str = "zero"


@dataclass(frozen=True, slots=True)
class LaunchRecipe:
    """How a kernel is launched.

    ``threads``: of one program, helper warps included. ``descriptors`` follow the kernel's own parameters, 128 bytes
    each, aligned to 64. ``persistent``: the grid is at most one program per SM (times ``occupancy``), and the
    sizes of the grid that the user asked for follow as three i32 parameters. ``cluster``: programs of one cluster,
    along the first grid axis, whose size must be a multiple of it. ``cooperative``: all programs run at the same time,
    or the launch is an error. ``programmatic``: they may begin before the kernel before them on the stream has ended,
    and wait for it themselves. ``scopes``: of an instrumented kernel the paths of its scopes, by their numbers in
    records, whose form is ``records``; it takes the address of a buffer (:mod:`.record_buffer`) after its own
    parameters.
    """

    threads: int
    guards: tuple[Guard, ...] = ()
    descriptors: tuple[TensorMap, ...] = ()
    persistent: bool = False
    occupancy: int = 1
    cluster: int = 1
    cooperative: bool = False
    programmatic: bool = False
    scopes: tuple[tuple[str, ...], ...] = ()
    records: RecordForm = RecordForm()

    def broken_by(self, known: Mapping[str, object]) -> tuple[Guard, ...]:
        """The guards that do not hold, as far as values are ``known``: numbers and addresses by parameter name."""
        found = []
        for guard in self.guards:
            value = known.get(guard.parameter)
            if isinstance(value, int) and not guard.holds(value):
                found.append(guard)
        return tuple(found)

    @property
    def argument_guards(self) -> tuple[Guard, ...]:
        """The guards that the code relies on: those about arguments."""
        return tuple(guard for guard in self.guards if guard.parameter != PROGRAMS)

    def to_json(self) -> dict[str, object]:
        """A JSON object; :meth:`from_json` reads it back."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> LaunchRecipe:
        """Read what :meth:`to_json` wrote."""
        values = {name: _tupled(value) for name, value in data.items()}
        values["records"] = RecordForm(**values["records"])
        values["guards"] = tuple(Guard(**guard) for guard in values["guards"])
        values["descriptors"] = tuple(
            TensorMap(**{name: _tupled(value) for name, value in described.items()})
            for described in values["descriptors"]
        )
        return LaunchRecipe(**values)


def _tupled(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(_tupled(item) for item in value) if isinstance(value, list | tuple) else value
