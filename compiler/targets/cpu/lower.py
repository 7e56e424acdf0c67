"""The state of one function on its way from tile IR to LLVM text.

Statements in program order (:mod:`.program_order`) have rules, which run loop nests over the chunks of tiles
(:mod:`.nests`). In a nest an :class:`~.emission.Emission` computes each chunk from the expression behind it
(:mod:`.expressions`), down to what is in memory. Loads wait for their readers, but not past a statement that changes
memory (:mod:`.pending`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import IRError
from ...ir.core import Op, Value
from ...ir.types import Element
from ...llvm.text import FunctionText, ModuleText
from ...llvm.typed import Emitter, Typed
from ...options import Schedule
from .arena import Arena, Buffer, Stored
from .chunk import Uniform, vector_axis
from .liveness import Liveness
from .loops import Blocks
from .plan import Plan
from .processor import Processor


@dataclass(frozen=True, slots=True)
class ProgramTrack:
    """Where a program records (:mod:`...record_buffer`): its first word, the mask of its ring, and the variable that
    counts its records."""

    start: Typed
    mask: Typed
    count: Typed


class CpuLowering:
    """Where the code of one function goes, and where its values are.

    A value of rank 0 is one of ``scalars``. A tile is one of ``stored``, or it is lazy: computed where it is read.
    """

    def __init__(
        self,
        module: ModuleText,
        function: FunctionText,
        plan: Plan,
        schedule: Schedule,
        processor: Processor,
    ) -> None:
        #: The text: functions that are called are declared in the module.
        self.module = module
        self.function = function
        #: The basic blocks; code is appended to ``blocks.here``.
        self.blocks = Blocks(function)
        #: Lines of the entry block, which variables of the whole function are added to.
        self.entry_lines = self.blocks.enter(self.blocks.here).lines
        #: What appends instructions.
        self.e = Emitter(function, contract=schedule.enable_fp_fusion)
        self.processor = processor

        #: Which tiles are to be kept in memory, decided before.
        self.plan = plan
        #: Which of scratch memory is taken where the code stands.
        self.arena = Arena()
        #: The reads that are still to come; it frees what nobody reads again.
        self.live = Liveness(plan, self.arena)
        #: The tiles in scratch memory (those of ``live``).
        self.stored = self.live.stored
        #: The registers of values of rank 0.
        self.scalars: dict[Value, Uniform] = {}
        #: Lazy loads in program order, which have to be done before what they read changes. A set that has an order.
        self.pending_loads: dict[Value, None] = {}

        #: What the function is called with (:mod:`.program`): scratch memory of this thread, and the status
        #: (:mod:`.debug`).
        self.scratch = Typed("ptr", "%scratch")
        self.status = Typed("ptr", "%status")
        #: The sizes of the grid, the number of this program in it (i64), and the program's index along each axis (i32).
        self.grid: list[Typed] = []
        self.program = Typed("i64", "%program")
        self.program_ids: list[Typed] = []
        #: Where a program records, if it does.
        self.track: ProgramTrack | None = None

        #: Assertions that were emitted: what to say, and the place.
        self.messages: list[tuple[str, str]] = []
        #: Prints that were emitted; the code calls back with their indices.
        self.prints: list[Op] = []

    def entry_variable(self, type: str) -> Typed:
        """A variable of the whole function, which LLVM keeps in a register."""
        name = f"%{self.function.fresh('variable')}"
        self.entry_lines.insert(1, f"  {name} = alloca {type}")
        return Typed("ptr", name)

    # Scalars ---------------------------------------------------------------------------------------------------

    def scalar(self, value: Value) -> Uniform:
        """The register of a rank-0 value."""
        return self.scalars[value]

    def set_scalar(self, value: Value, made: Typed) -> None:
        """Make ``made`` the register of a rank-0 value."""
        self.scalars[value] = Uniform(made, 0, None, 1)

    # Tiles in memory -------------------------------------------------------------------------------------------

    def allocate(self, value: Value) -> Buffer:
        """Scratch memory for all elements of ``value``; i1 takes a byte."""
        return self.arena.allocate(value.type.size * value.type.elem.bytes)

    def base(self, buffer: Buffer) -> Typed:
        """The address of ``buffer``, computed where the code stands."""
        return self.e.offset(self.scratch, Typed("i64", str(buffer.offset)), "i8")

    def in_memory(self, op: Op, value: Value) -> Stored:
        """Where ``op`` finds an operand. Raises IRError where its rule in ``buffers`` does not ask for that."""
        stored = self.stored.get(value)
        if stored is None:
            raise IRError(f"{op!r} at {op.location} reads {value!r} in memory, and `buffers` does not say so")
        return stored

    def define_stored(self, value: Value, buffer: Buffer) -> None:
        """A statement has written its result ``value`` to ``buffer``."""
        self.live.keep(value, Stored(buffer, value.type.shape))

    # Chunks ----------------------------------------------------------------------------------------------------

    def lanes(self, tile_shape: tuple[int, ...], elem: Element) -> int:
        """Elements in a chunk of a tile: :meth:`chunk_lanes`, or the whole minor dimension."""
        return min(self.chunk_lanes(elem), tile_shape[vector_axis(tile_shape)]) if tile_shape else 1

    def chunk_lanes(self, elem: Element) -> int:
        """Elements in two native vectors; elements narrower than 4 bytes count as 4."""
        return 2 * self.processor.vector_bytes // max(4, elem.bytes)
