"""Index vectors that may turn out to count up by one: where they do, what they point to is contiguous."""

from __future__ import annotations

from ...ir.core import Value
from ...llvm.typed import Typed
from .arena import Stored
from .chunk import ZERO, vector_axis
from .emission import Emission
from .lower import CpuLowering

#: Lanes that a chunk must have to be worth a look at run time.
WORTH_CHECKING = 4


def check_progression(low: CpuLowering, value: Value, stored: Stored) -> None:
    """Find out at run time whether the aligned chunks of an index vector count up by one: ``stored.holds``."""
    lanes = low.lanes(value.type.shape, value.type.elem)
    if lanes < WORTH_CHECKING:
        return
    emission = Emission(low, lanes, {})
    axis = vector_axis(stored.shape)
    count, true = stored.shape[axis] // lanes, Typed("i1", "true")
    coord, (sofar,) = emission.open(count, lanes, stride=1, carried=[true])
    coords = tuple(coord if d == axis else ZERO for d in range(len(stored.shape)))
    vector = emission.as_vector(emission.read(stored, value.type.elem, coords))
    with emission.nest.at(emission.nest.depth):
        whole = low.e.binary("and", sofar, _counts_up(low, vector, lanes))
    (holds,) = emission.close([whole])
    emission.finish()
    stored.lane_stride, stored.width, stored.axis, stored.holds = 1, lanes, axis, holds


def _counts_up(low: CpuLowering, vector: Typed, lanes: int) -> Typed:
    """Whether each lane is one more than the lane before, as an i1."""
    first = low.e.splat(low.e.extract(vector, 0), lanes)
    steps = low.e.binary("sub", vector, first)
    wanted = ", ".join(f"{vector.element} {i}" for i in range(lanes))
    same = low.e.compare("eq", steps, Typed(vector.type, f"<{wanted}>"))
    return Typed("i1", low.function.call("i1", f"llvm.vector.reduce.and.v{lanes}i1", [(same.type, same.name)]))
