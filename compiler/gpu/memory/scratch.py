"""Shared memory allocation: how much each operation needs, and where it lies.

Pipes keep their place for the whole program, rings as long as a loop may be fed from them, tiles that later operations
read until the last has (see :mod:`.lifetimes`, which says why that is safe). Scratch lives as long as its operation: it
lies behind all that, or, where there is no room, on what is idle by then, as rings are when results are converted. All
of it could start at the same byte; operations that follow each other get different places as long as that costs
nothing, because then no barrier is needed between them (see :mod:`.barriers`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import IRError, OutOfResources
from ...hardware import VECTOR_BYTES
from ...ir.core import Function, Op, Value, uses
from ...ir.printer import print_function
from ...ir.rules import RuleSet
from ...launch_recipe import LaunchRecipe
from ...layout import Conversion, LinearLayout, SharedMemory, plan_conversion
from ...layout.access import element_bytes_of
from ...layout.convert import BARRIER_COST
from ...target import Target
from ...tile.assembly import EffectfulAssembly, InlineAssembly
from ...tile.elementwise import Constant
from ...tile.map import MapElementwise
from ...tile.matmul import Dot
from ...tile.memory import AtomicCAS, AtomicRMW
from ...tile.movement import Butterfly, Gather
from ...tile.program import NumPrograms, ProgramId
from ...tile.reduction import Histogram, Reduce, Scan
from ...tile.shape import Arange, Splat
from ..asynchronous import Deposit, GridSize, Pipe, Put, RingBuffer, SharedView, Wgmma
from ..layouts.butterfly import plan_butterfly
from ..layouts.operands import LocalLoad, LocalStore, OperandPlan, plan_local_load, plan_local_store, plan_operand
from ..layouts.reduction import bits_of, plan_reduction
from ..layouts.scan import plan_scan
from ..layouts.views import VIEWS
from ..layouts.warp_exchange import exchange_bytes, plan_exchange
from ..ops import Agree, ConvertLayout, Mma, VectorUpdate
from .lifetimes import ByteRange, Lifetimes, TakenBytes

Readers = dict[Value, list[Op]]
#: Shared memory in bytes that an operation needs while it runs, of the operation and the readers of all values. What
#: computes tiles has a rule unless it is elementwise; other operations without a rule need none.
scratch: RuleSet[Callable[..., int]] = RuleSet("shared memory")

#: Bytes of shared memory in which scratch goes round (:class:`_Scratch`): at least so many, which cost no occupancy,
#: and for large scratch at most so many.
SMALL_BYTES = 2 * 1024
ROTATION_BYTES = 32 * 1024
#: Larger tiles are converted part by part: barriers cost less than rings with fewer slots.
CONVERSION_BYTES = 64 * 1024
#: Bytes to which all else is aligned: that of the widest access of a thread.
ALIGNMENT = VECTOR_BYTES
#: Alignment in bytes of tiles that the copy engine writes or wgmma reads: a swizzle repeats every 1024 bytes (PTX ISA).
TILE_ALIGNMENT = 1024
#: Cost of a barrier where each warp has all of the tile, so that none would have to wait for another: a group of warps
#: that is ahead of another one does. Attention's gradients take 1.1 to 1.25 times as long with two of them in their
#: loop (benchmarks/results/2026-11-29-h200-turns, gradients.txt).
NEEDLESS_BARRIER_COST = 3 * BARRIER_COST
#: Bytes of one mbarrier.
BARRIER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where the scratch of each operation lies, and how many bytes there are in all."""

    places: dict[Op, ByteRange]
    total: int


@dataclass(eq=False)
class GpuFunction(Function):
    """A function whose tiles have layouts and whose scratch has its place: what back ends lower.

    ``recipe``: what a launch has to do.
    """

    allocation: Allocation = field(default_factory=lambda: Allocation({}, 0))
    recipe: LaunchRecipe = field(default_factory=lambda: LaunchRecipe(0))

    @property
    def num_slots(self) -> int:
        """Slots of the longest ring; 0 without rings."""
        return max((pipe.slots for pipe in self.ops_of(Pipe)), default=0)


def print_gpu(function: Function, recipe: LaunchRecipe | None = None, *, locations: bool = False) -> str:
    """The text of a function at any step of the GPU stage. What a launch has to do, so far ``recipe``, and places in
    shared memory, once there are any, are comments; with ``locations`` those in the source as well."""
    lines, notes = [], {}
    if isinstance(function, GpuFunction):
        recipe, made = function.recipe, function.allocation
        facts = [f"{recipe.threads} threads", f"{made.total} bytes of shared memory"]
        lines = [", ".join(facts + (["persistent"] if recipe.persistent else []))]
        notes = {op: f"at {place.start}, {place.end - place.start} bytes" for op, place in made.places.items()}
    if recipe is not None:
        lines += [f"guard {guard}" for guard in recipe.guards]
        lines += [f"descriptor {number}: {made}" for number, made in enumerate(recipe.descriptors)]
    return "".join(f"// {line}\n" for line in lines) + print_function(function, locations=locations, notes=notes)


def allocate(function: Function, target: Target) -> Allocation:
    """Place all shared memory of ``function``; raises OutOfResources when it does not fit ``target``."""
    used, lifetimes, taken = uses(function), Lifetimes(function), TakenBytes()
    places = _lasting(function, lifetimes, taken)
    sizes = {op: size for op in function.walk() if op not in places and (size := scratch_bytes(op, used))}
    places |= _pipes(function, lifetimes, taken, _end_on_rings(sizes, lifetimes, taken))
    passing = _Scratch(sizes, lifetimes, taken)
    places |= passing.places(target)
    return Allocation(places, max([passing.floor, *(found.end for found in places.values())]))


class _Scratch:
    """The scratch of operations, each of which needs it only while it runs. ``taken``: by all that lasts.

    Scratch that follows other scratch in the same place needs a barrier before it, so it goes round in a part of memory
    that is larger than it has to be, as far as that costs no other program its place on the SM.
    """

    def __init__(self, sizes: dict[Op, int], lifetimes: Lifetimes, taken: TakenBytes) -> None:
        self._sizes = sizes
        self._lifetimes = lifetimes
        self._taken = taken
        #: Behind all that lasts.
        self.floor = -(-taken.end // ALIGNMENT) * ALIGNMENT

    def places(self, target: Target) -> dict[Op, ByteRange]:
        """A place for each; raises OutOfResources."""
        lowest = {op: self._from(op) for op in self._sizes}
        least = max([self.floor, *(place.end for place in lowest.values())])
        if least > target.shared_bytes:
            raise OutOfResources("shared memory", least, target.shared_bytes)
        behind = max((size for op, size in self._sizes.items() if lowest[op].start >= self.floor), default=0)
        room = max(SMALL_BYTES, min(2 * behind, ROTATION_BYTES))
        limit = min(max(least, self.floor + room), target.shared_bytes)
        made: dict[Op, ByteRange] = {}
        cursor = self.floor
        for op in self._sizes:
            next_one = self._from(op, cursor)
            made[op] = next_one if next_one.end <= limit else lowest[op]
            cursor = made[op].end
        return made

    def _from(self, op: Op, first: int = 0) -> ByteRange:
        """The lowest place of ``op`` from byte ``first`` on."""
        return self._taken.lowest(self._sizes[op], self._lifetimes.during(op), ALIGNMENT, first)


def _lasting(function: Function, lifetimes: Lifetimes, taken: TakenBytes) -> dict[Op, ByteRange]:
    """What outlives its operation, but for pipes: rings, then tiles, large ones first, then results."""
    sizes = {op: size for op in function.walk() if (size := tile_bytes(op))}
    tiles = sorted((op for op in sizes if isinstance(op, ConvertLayout)), key=lambda op: -sizes[op])
    results = [op for op in sizes if isinstance(op, Put) and not lifetimes.comes_round(op)]
    rings = [op for op in sizes if op not in results and not isinstance(op, ConvertLayout)]
    spans = {op: lifetimes.since(op) if isinstance(op, Put) else lifetimes.of(op) for op in sizes}
    places: dict[Op, ByteRange] = {}
    for op in (*rings, *tiles):
        places[op] = taken.lowest(sizes[op], spans[op], TILE_ALIGNMENT)
        taken.take(places[op], spans[op])
    # Copies leave their memory until the end, but results wait for each other: they may lie in the same place.
    places |= {op: taken.lowest(sizes[op], spans[op], TILE_ALIGNMENT) for op in results}
    for op in results:
        taken.take(places[op], spans[op])
    return places


def _end_on_rings(sizes: dict[Op, int], lifetimes: Lifetimes, taken: TakenBytes) -> int:
    """Behind what ``taken`` holds and the scratch that begins among it: large scratch may lie on rings and reach beyond
    them, where things that are needed all the time would be in its way."""
    places = [taken.lowest(size, lifetimes.during(op), ALIGNMENT) for op, size in sizes.items()]
    return max([taken.end, *(place.end for place in places if place.start < taken.end)])


def _pipes(function: Function, lifetimes: Lifetimes, taken: TakenBytes, first: int) -> dict[Op, ByteRange]:
    """The state of pipes, from byte ``first`` on."""
    places: dict[Op, ByteRange] = {}
    for op in function.walk():
        if isinstance(op, Pipe):
            size = BARRIER_BYTES * op.slots * (2 if op.readers else 1)
            places[op] = taken.lowest(size, lifetimes.whole, BARRIER_BYTES, first)
            taken.take(places[op], lifetimes.whole)
    return places


def tile_bytes(op: Op) -> int:
    """Bytes of the tile in shared memory that ``op`` makes and others read."""
    match op:
        case RingBuffer():
            return op.slots * op.tile.size * element_bytes_of(bits_of(op.tile))
        case Put():
            return op.place.size * element_bytes_of(bits_of(op.place)) // op.parts
        case ConvertLayout() if op.to.shared is not None:
            return op.to.size * element_bytes_of(bits_of(op.to))
        case _:
            return 0


def scratch_bytes(op: Op, used: Readers) -> int:
    """Shared memory in bytes that ``op`` needs while it runs."""
    rule = scratch.rules.get(type(op))
    return 0 if rule is None else rule(op, used)


@scratch(Arange, Constant, EffectfulAssembly, InlineAssembly, MapElementwise, NumPrograms, ProgramId, Splat)
@scratch(GridSize, Mma, SharedView, Wgmma, *VIEWS)
def _none(op: Op, used: Readers) -> int:
    return 0


@scratch(ConvertLayout)
def _of_conversion(op: ConvertLayout, used: Readers) -> int:
    plan = choose_conversion(op)
    return plan.bytes if isinstance(plan, SharedMemory | OperandPlan) else 0


def is_round_trip(op: ConvertLayout) -> bool:
    """Whether threads write to shared memory, wait for each other and read, all within ``op``."""
    return isinstance(choose_conversion(op), SharedMemory | OperandPlan)


@scratch(Reduce)
def _of_reduction(op: Reduce, used: Readers) -> int:
    plan = plan_reduction(_layout(op.inputs[0]), op.axis)
    if not plan.warp_bits:
        return 0
    sizes = [element_bytes_of(bits_of(v.type)) for v in op.inputs]
    exchange = plan_exchange(plan, max(sizes))
    return sum(sum(exchange_bytes(exchange, size)) for size in sizes)


@scratch(Scan)
def _of_scan(op: Scan, used: Readers) -> int:
    plan = plan_scan(_layout(op.inputs[0]), op.axis)
    return sum(plan.scratch_bytes(bits_of(v.type)) for v in op.inputs)


@scratch(Butterfly)
def _of_butterfly(op: Butterfly, used: Readers) -> int:
    return plan_butterfly(_layout(op.x), op.axis, op.distance).scratch_bytes(bits_of(op.x.type))


@scratch(Gather)
def _of_gather(op: Gather, used: Readers) -> int:
    return op.src.type.size * element_bytes_of(bits_of(op.src.type))


@scratch(Histogram)
def _of_histogram(op: Histogram, used: Readers) -> int:
    return op.result.type.size * op.result.type.elem.bytes


@scratch(Dot)
def _of_product(op: Dot, used: Readers) -> int:
    return operand_bytes(op.a) + operand_bytes(op.b)


@scratch(Agree, AtomicRMW, VectorUpdate, AtomicCAS)
def _of_one_threads_result(op: Agree | AtomicRMW | AtomicCAS, used: Readers) -> int:
    if op.result not in used or not is_shared_by_threads(op.result):
        return 0
    return op.result.type.size * element_bytes_of(bits_of(op.result.type))


def operand_bytes(value: Value) -> int:
    """Scratch in bytes for an operand of a product without tensor cores: none if it lies in shared memory already."""
    size = 0 if value.type.shared is not None else value.type.size * element_bytes_of(bits_of(value.type))
    return -(-size // ALIGNMENT) * ALIGNMENT


def choose_conversion(op: ConvertLayout) -> Conversion | OperandPlan | LocalLoad | LocalStore:
    """How ``op`` moves its tile; by ldmatrix where that is possible and shared memory is needed anyway."""
    bits = bits_of(op.x.type)
    if op.x.type.shared is not None:
        return plan_local_load(op.x.type.shared, _layout(op.result), bits)
    if op.to.shared is not None:
        # Operands of wgmma; what has that has stmatrix.
        return plan_local_store(_layout(op.x), op.to.shared, bits, matrices=True)
    source, result = _layout(op.x), _layout(op.result)
    alone = source.warps > 1 and not any(source.flat_warp)
    plan = plan_conversion(source, result, bits, CONVERSION_BYTES, NEEDLESS_BARRIER_COST if alone else BARRIER_COST)
    if isinstance(plan, SharedMemory):
        whole = plan_operand(source, result, bits)
        large = whole is not None and whole.bytes > CONVERSION_BYTES and not _is_fragment(result)
        return plan if whole is None or large else whole
    return plan


def plan_deposit(op: Deposit) -> LocalStore:
    """How threads write a tile into a slot."""
    shared = op.ring.type.shared
    if shared is None:
        raise IRError(f"{op!r} fills no ring")
    return plan_local_store(_layout(op.value), shared, bits_of(op.value.type))


def _is_fragment(layout: LinearLayout) -> bool:
    """Whether threads hold elements as operands of tensor cores: four along the inner axis, eight along the other (PTX
    ISA, "Matrix Fragments for mma.m16n8k16"). Operands that find no room are too large for registers, too."""
    along = [sum(bool(basis[axis]) for basis in layout.lane) for axis in range(layout.rank)]
    return sorted(along) == [2, 3]


def _layout(value: Value) -> LinearLayout:
    layout = value.type.layout
    if layout is None:
        raise IRError(f"{value!r} has no layout")
    return layout


def is_shared_by_threads(value: Value) -> bool:
    """Whether several threads hold the same element, so that only one of them may touch memory for it."""
    layout = value.type.layout
    return layout is None or bool(layout.free_bits("lane") or layout.free_bits("warp"))
