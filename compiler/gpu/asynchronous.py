"""Operations on memory that is filled while the program goes on: rings of buffers, and the roles of warp groups.

A *ring* is a buffer with several slots in shared memory. A *pipe* says which slots are full: whoever copies acquires a
slot, issues copies into it and advances; whoever computes receives a slot, reads it and releases it. Both sides keep a
cursor of their own, so the same operations serve one group of threads that runs ahead of itself (``multistage``) and
groups that do different things (``roles``). A pipe with ``readers`` is two mbarriers a slot, full and empty (PTX ISA,
"mbarrier"); without, full alone, and a barrier of all threads keeps copies out of slots that are still read.
"""

from __future__ import annotations

from ..ir.core import Block, Effect, Op, Value
from ..ir.types import I32, Pointer, Tile
from ..tile.control import For, handed_on

#: How a slot is filled: by the copy engine from a descriptor, by copies of threads, up to 16 bytes each, or from the
#: registers of threads.
ENGINES = ("tma", "cp.async", "threads")


class RingBuffer(Op, mnemonic="gpu.ring", effect=Effect.WRITE):
    """``slots`` tiles of type ``tile`` in shared memory."""

    tile: Tile
    slots: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: the type of one slot, which has a shared layout, else TypeMismatch."""
        if self.tile.shared is None:
            raise self.fail("a ring lies in shared memory")
        return (self.tile,)


class Pipe(Op, mnemonic="gpu.pipe", effect=Effect.WRITE):
    """The state of ``slots`` slots that are filled and emptied together.

    ``engine``: what tells that copies have landed. ``readers``: arrivals that empty a slot, 0 where all threads meet at
    a barrier instead.
    """

    slots: int
    readers: int
    engine: str

    def infer(self) -> tuple[Tile, ...]:
        """Result: a handle, an i32."""
        if self.engine not in ENGINES:
            raise self.fail(f"unknown engine {self.engine!r}", hint=", ".join(ENGINES))
        return (Tile(I32),)


class Acquire(Op, mnemonic="gpu.acquire", effect=Effect.WRITE):
    """Wait until the next slot to fill is empty; ``bytes`` will be copied into it."""

    pipe: Value
    bytes: int


class Fetch(Op, mnemonic="gpu.fetch", effect=Effect.WRITE):
    """Begin to copy a box of an array into the acquired slot of ``ring``; operands are those of ``block_load``.

    ``descriptor``: the number of the launch's TMA descriptor; -1 for copies by threads, of ``width`` bytes each.
    ``whole``: these are inside the array or outside of it, never in part.
    """

    ring: Value
    pipe: Value
    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    checked: tuple[int, ...]
    descriptor: int = -1
    width: int = 16
    whole: bool = False

    def infer(self) -> tuple[Tile, ...]:
        """No results; TypeMismatch where the array's elements are not the ring's."""
        elem = self.base.type.elem
        if not isinstance(elem, Pointer) or elem.pointee != self.ring.type.elem:
            raise self.fail("the ring has other elements than the array")
        return ()


class FetchTile(Op, mnemonic="gpu.fetch_tile", effect=Effect.WRITE):
    """Begin to copy elements into the acquired slot of ``ring``, by threads: each from where its pointer says, zeros
    where the mask is false. ``vector`` neighbours along ``axis`` are copied at once; they share the mask's value."""

    ring: Value
    pipe: Value
    pointer: Value
    mask: Value | None
    vector: int
    axis: int

    def infer(self) -> tuple[Tile, ...]:
        """No results; TypeMismatch where pointers or mask do not fit the ring."""
        elem, shape = self.pointer.type.elem, self.ring.type.shape
        if not isinstance(elem, Pointer) or elem.pointee != self.ring.type.elem or self.pointer.type.shape != shape:
            raise self.fail("the ring has other elements than the pointers")
        if self.mask is not None and self.mask.type.shape != shape:
            raise self.fail("the mask must have the pointers' shape")
        return ()


class Deposit(Op, mnemonic="gpu.deposit", effect=Effect.WRITE):
    """Write ``value`` from registers into the next slot of ``ring`` to fill, for the tensor cores.

    No thread waits for another: whoever fills has passed a :class:`Receive` behind everybody's reads of that slot, and
    whoever reads passes one behind everybody's writes. A ring of two slots is enough for that.
    """

    ring: Value
    pipe: Value
    value: Value

    def infer(self) -> tuple[Tile, ...]:
        """No results; TypeMismatch where the tile is not one of the ring's."""
        ring, value = self.ring.type, self.value.type
        if (ring.elem, ring.shape) != (value.elem, value.shape):
            raise self.fail("the ring is one of other tiles")
        return ()


class Advance(Op, mnemonic="gpu.advance", effect=Effect.WRITE):
    """All copies into the acquired slot are under way: the next one is the next to fill."""

    pipe: Value


class Commit(Op, mnemonic="gpu.commit", effect=Effect.WRITE):
    """Close the group of copies that each thread has begun since the last one (PTX ISA, "cp.async.commit_group"): what
    ``receive`` counts. The group may be empty."""


class Receive(Op, mnemonic="gpu.receive", effect=Effect.WRITE):
    """Wait until the copies into the next slot to read have landed and every thread of the group may read it.

    ``pending``: for copies by threads, how many later groups (see :class:`Commit`) may still be under way. What comes
    from registers has landed when all threads have met here.
    ``fenced``: what threads have copied is read through the asynchronous proxy (see :mod:`.memory.fences`).
    """

    pipe: Value
    pending: int = 0
    fenced: bool = False


class Vacate(Op, mnemonic="gpu.vacate", effect=Effect.WRITE):
    """All threads have read the slots before those that they have received, which are filled next. Products that read
    what was received last may be in flight."""


class Slot(Op, mnemonic="gpu.slot", effect=Effect.READ):
    """The received slot of ``ring``, until it is released."""

    ring: Value
    pipe: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: the ring's tile."""
        return (self.ring.type,)


class Release(Op, mnemonic="gpu.release", effect=Effect.WRITE):
    """This group has read the received slot: the next one is the next to read.

    ``fenced``: it was read by ordinary instructions, and the copy engine is kept from overwriting what these have not
    read yet. An arrival alone does not do that: it may overtake loads that wait for their turn.
    """

    pipe: Value
    fenced: bool = False


class Put(Op, mnemonic="gpu.put", effect=Effect.WRITE):
    """Begin to write a box of an array from registers, through shared memory and the copy engine.

    Operands are those of ``block_store``. ``parts``: how many times the memory is used for one box; ``rows``: those of
    one copy; where they are fewer than the box's, each group of four warps writes its own, without waiting for the
    others. ``ordered``: what was put before has arrived, for this may be written to the same place.
    """

    base: Value
    sizes: tuple[Value, ...]
    strides: tuple[Value, ...]
    offsets: tuple[Value, ...]
    value: Value
    place: Tile
    descriptor: int
    parts: int
    rows: int
    ordered: bool


class Drain(Op, mnemonic="gpu.drain", effect=Effect.WRITE):
    """Wait until all boxes that were put have left shared memory: the end of a kernel frees it."""


class GridSize(Op, mnemonic="gpu.grid_size"):
    """The size of the grid that the user asked for, along ``axis``, where the launched one is smaller."""

    axis: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: an i32."""
        return (Tile(I32),)


class SharedView(Op, mnemonic="gpu.shared_view"):
    """The same shared memory as a tile with dimension i = old dimension ``order[i]``."""

    x: Value
    order: tuple[int, ...]

    def infer(self) -> tuple[Tile, ...]:
        """Result: the permuted tile, in shared memory as the operand is."""
        held = self.x.type
        if held.shared is None:
            raise self.fail("the operand must lie in shared memory")
        shape = tuple(held.shape[axis] for axis in self.order)
        return (Tile(held.elem, shape, None, held.shared.permute(self.order)),)


def slot_of(value: Value) -> Slot | None:
    """The slot whose memory ``value`` is, perhaps seen otherwise."""
    made = value.op
    while isinstance(made, SharedView):
        made = made.x.op
    return made if isinstance(made, Slot) else None


def readers_of(value: Value, used: dict[Value, list[Op]]) -> list[Op]:
    """The operations that read the memory of ``value``, slots and views included; ``used``: who reads which value."""
    found: list[Op] = []
    for op in used.get(value, ()):
        found.append(op)
        if isinstance(op, SharedView | Slot):
            found += readers_of(op.result, used)
    return found


class Roles(Op, mnemonic="gpu.roles", effect=Effect.CONTROL):
    """The end of a kernel whose warps do different things: the first of ``producer_warps`` more warps runs
    ``producer``, the usual ones run ``consumer``.

    ``resident_ctas``: how many an SM is to hold, 0 if that is left to the assembler. ``producer_registers`` and
    ``consumer_registers``: per thread from here on (setmaxnreg); 0 leaves them as they are.
    """

    producer_warps: int
    resident_ctas: int
    producer_registers: int
    consumer_registers: int
    producer: Block
    consumer: Block


class Wgmma(Op, mnemonic="gpu.wgmma"):
    """``dot`` by wgmma, the tensor core instruction of warp groups (PTX ISA, "wgmma.mma_async").

    ``b`` lies in shared memory, ``a`` there or in registers as ``dot_operand``; ``acc`` is a ``wgmma_accumulator`` of
    instructions with ``columns`` columns. Unless it ``waits``, the result is in flight until the :class:`Await` of it,
    or of a product that adds to it, and so is what it reads.
    """

    a: Value
    b: Value
    acc: Value
    columns: int
    waits: bool = True

    def infer(self) -> tuple[Tile, ...]:
        """Result: the accumulator's type."""
        a, b, acc = self.a.type, self.b.type, self.acc.type
        if (a.shape[0], b.shape[1]) != acc.shape or a.shape[1] != b.shape[0] or a.elem != b.elem:
            raise self.fail("shapes or element types do not fit")
        if b.shared is None:
            raise self.fail("the second operand must lie in shared memory")
        return (acc,)


def awaited(value: Value) -> list[Wgmma]:
    """The products that are done once ``value`` is waited for: that which makes it, where a loop does its last
    iteration's, and those in flight that it adds to."""
    while isinstance(loop := value.op, For):
        value = handed_on(loop.body)[loop.results.index(value)]
    return added_up(value.op)


def added_up(product: Op | None) -> list[Wgmma]:
    """The products that end with ``product``: itself, and those in flight that it adds to, the last one first."""
    found: list[Wgmma] = []
    while isinstance(product, Wgmma) and (not found or not product.waits):
        found.append(product)
        product = product.acc.op
    return found


class Await(Op, mnemonic="gpu.await", effect=Effect.WRITE):
    """Wait until all products are done but the last ``pending`` ones, which were begun after ``x``."""

    x: Value
    pending: int

    def infer(self) -> tuple[Tile, ...]:
        """Result: the tile, which may be read from now on."""
        return (self.x.type,)


class Settle(Op, mnemonic="gpu.settle", effect=Effect.WRITE):
    """Wait until all products are done but the last ``pending`` ones; nobody needs their sums yet."""

    pending: int


class TakeTurn(Op, mnemonic="gpu.take_turn", effect=Effect.WRITE):
    """Wait until the other one of two groups of warps has passed the turn.

    ``group``: the one that waits, 0 or 1; -1 for each, to begin what the other one is not to begin meanwhile.
    """

    group: int = -1


class PassTurn(Op, mnemonic="gpu.pass_turn", effect=Effect.WRITE):
    """Let the other one of two groups of warps take the turn; ``group``: the one that passes it, as for TakeTurn.

    A group takes a turn before it is passed another one.
    """

    group: int = -1
