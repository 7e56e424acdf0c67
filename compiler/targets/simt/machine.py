"""What a SIMT target provides: the few things that its instruction set spells in its own way.

The rules of this folder lower everything else to LLVM text that any target with warps of 32 lanes, memory shared by the
threads of a program and barriers can compile. A method appends code to ``state.text`` and returns the names of the
results; values are LLVM text of the stated types, addresses in global memory ``ptr addrspace(1)``, in shared memory
``ptr addrspace(3)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...ir.core import Op
from ...ir.rules import RuleSet
from ...ir.types import Scalar
from ...layout import MatrixAccess

if TYPE_CHECKING:
    from ...gpu.ops import VectorLoad, VectorStore, VectorUpdate
    from ...tile.memory import AtomicCAS, AtomicRMW
    from .lowering import Lowering
    from .vectors import Words


class SimtTarget(ABC):
    """One target, as the shared rules see it."""

    #: How messages call it.
    name: str
    triple: str
    #: LLVM's calling convention of kernels.
    calling_convention: str
    #: The shared rules, and those of operations that only this target has.
    rules: RuleSet[Callable[[Lowering, Op], None]]

    # Threads -------------------------------------------------------------------------------------------------

    @abstractmethod
    def kernel_attributes(self, state: Lowering) -> list[str]:
        """LLVM attributes of the kernel, such as its number of threads."""

    @abstractmethod
    def hidden_parameters(self, state: Lowering) -> list[str]:
        """Declarations of the parameters that a launch adds to the kernel's own."""

    def begin(self, state: Lowering) -> None:
        """What a kernel does first; nothing, unless a target overrides it."""
        del state

    def end(self, state: Lowering) -> None:
        """What a kernel does last; nothing, unless a target overrides it."""
        del state

    @abstractmethod
    def thread_id(self, state: Lowering) -> str:
        """The number of this thread in its program (i32); lanes are its lowest five bits, the warp the others."""

    @abstractmethod
    def program_id(self, state: Lowering, axis: int) -> str:
        """The index of this program along ``axis`` of the grid (i32)."""

    @abstractmethod
    def num_programs(self, state: Lowering, axis: int) -> str:
        """The size of the grid along ``axis`` (i32)."""

    @abstractmethod
    def barrier(self, state: Lowering) -> None:
        """All threads of the program, or of ``state.group_threads``, wait for each other, and see what the others wrote
        to shared memory."""

    @abstractmethod
    def warp_barrier(self, state: Lowering) -> None:
        """The threads of a warp wait for each other, and see what the others wrote."""

    @abstractmethod
    def publish_shared(self, state: Lowering) -> None:
        """What this thread wrote to shared memory becomes visible to instructions that read it asynchronously, once a
        barrier follows."""

    @abstractmethod
    def shuffle_xor(self, state: Lowering, value: str, word: str, lane_xor: int) -> str:
        """``value`` (``word``: i32 or float) of the lane whose number differs by ``lane_xor``."""

    @abstractmethod
    def shuffle_from(self, state: Lowering, value: str, word: str, lane: str) -> str:
        """``value`` (``word``: i32 or float) of the lane whose number modulo 32 is ``lane`` (i32)."""

    @abstractmethod
    def reduce_warp(self, state: Lowering, kind: str, value: str) -> str:
        """What all lanes of the warp make of their ``value`` (i32) together; ``kind``: add, and, or, xor, min, max, or
        umin and umax of unsigned ones."""

    # Memory --------------------------------------------------------------------------------------------------

    @abstractmethod
    def load_global(
        self,
        state: Lowering,
        op: VectorLoad,
        words: Words,
        address: str,
        predicate: str | None,
        other: list[str] | None,
    ) -> list[str]:
        """Load ``words`` with the modifiers of ``op`` where ``predicate`` (None: always) holds.

        Elsewhere memory is not touched and the result is ``other`` (elements), zero if that is None.
        """

    @abstractmethod
    def store_global(
        self, state: Lowering, op: VectorStore, words: Words, address: str, packed: list[str], predicate: str | None
    ) -> None:
        """Store ``packed`` words with the modifiers of ``op`` where ``predicate`` (None: always) holds."""

    @abstractmethod
    def store_shared(self, state: Lowering, bits: int, value: str, address: str, predicate: str) -> None:
        """Store an integer of ``bits`` bits to shared memory where ``predicate`` holds."""

    @abstractmethod
    def add_shared(self, state: Lowering, value: str, address: str, predicate: str) -> None:
        """Add an i32 to one in shared memory where ``predicate`` holds, as one step among those of other threads."""

    @abstractmethod
    def load_matrices(self, state: Lowering, read: MatrixAccess, address: str, offset: int) -> list[str]:
        """One i32 of tensor core fragments per matrix of ``read``, ``offset`` bytes past ``address`` (shared)."""

    @abstractmethod
    def store_matrices(
        self, state: Lowering, write: MatrixAccess, address: str, offset: int, words: Sequence[str]
    ) -> None:
        """Store an i32 of fragments per matrix of ``write``, ``offset`` bytes past ``address`` (shared)."""

    @abstractmethod
    def atomic(
        self,
        state: Lowering,
        op: AtomicRMW,
        order: str,
        kind: str,
        elem: Scalar,
        address: str,
        value: str,
        predicate: str | None,
    ) -> str:
        """The old value of a read-modify-write of ``kind`` on ``elem``, in the scope of ``op``; ``order``: one of
        SEMANTICS.

        Floats are only added and exchanged: their extrema arrive as those of integers, or as compare-and-swap.

        Raises:
            UnsupportedOp: the target has no such operation.
        """

    @abstractmethod
    def compare_and_swap(
        self,
        state: Lowering,
        op: AtomicRMW | AtomicCAS,
        order: str,
        address: str,
        expected: str,
        value: str,
        predicate: str | None,
    ) -> str:
        """The old value of a compare-and-swap, in the scope of ``op``, and zero where ``predicate`` (None: always) does
        not hold; operands and result are integers of the element's width."""

    @abstractmethod
    def update(
        self, state: Lowering, op: VectorUpdate, words: Words, address: str, packed: list[str], predicate: str | None
    ) -> None:
        """The update of ``packed`` words, each element in one step, relaxed, in the scope of ``op``.

        Raises:
            UnsupportedOp: the target has no such operation.
        """

    @abstractmethod
    def fence(self, state: Lowering, scope: str) -> None:
        """Relaxed atomics before and after it are releases of what this thread did before, and acquire what it does
        afterwards, in ``scope``."""

    # Records -------------------------------------------------------------------------------------------------

    @abstractmethod
    def clock(self, state: Lowering, word: str) -> str:
        """The cycle counter of this warp's SM, or its low bits (``word``: i64 or i32), read where it stands."""

    @abstractmethod
    def timer(self, state: Lowering) -> str:
        """Nanoseconds on a timer of the whole device (i64)."""

    @abstractmethod
    def sm_number(self, state: Lowering) -> str:
        """The number of the streaming multiprocessor (SM) that runs this program (i32)."""

    @abstractmethod
    def load_words(self, state: Lowering, address: str) -> list[str]:
        """Two i64 in global memory at ``address`` (i64), a multiple of 16."""

    @abstractmethod
    def store_words(self, state: Lowering, address: str, word: str, values: Sequence[str], predicate: str) -> None:
        """Store one or two ``values`` (``word``: i64 or i32) that nobody reads soon to global memory at ``address``
        (i64), a multiple of their size, where ``predicate`` holds."""

    # Arithmetic ----------------------------------------------------------------------------------------------

    @abstractmethod
    def divide_integers(self, state: Lowering, kind: str, scalar: Scalar, x: str, y: str) -> str:
        """x / y towards zero (``kind``: div) or what is left (rem), of 32 bits: all are set where y is 0, and the
        minimum / -1 wraps."""

    @abstractmethod
    def divide(self, state: Lowering, x: str, y: str) -> str:
        """``x / y`` in f32 to 2 ulp."""

    @abstractmethod
    def divider(self, state: Lowering, y: str) -> Callable[[str], str]:
        """What divides by ``y`` as :meth:`divide` does, to the bit; what dividends have in common is computed here."""

    @abstractmethod
    def fma_down(self, state: Lowering, x: str, y: str, z: str) -> str:
        """``x * y + z`` in f32, rounded towards minus infinity."""

    @abstractmethod
    def exp2(self, state: Lowering, x: str, *, flush: bool) -> str:
        """2 to the power ``x`` in f32, to 2 ulp; with ``flush``, results under 2^-126 may be zero."""

    @abstractmethod
    def log2(self, state: Lowering, x: str) -> str:
        """The logarithm of ``x`` to base 2 in f32, within 2**-22 or that part of itself; -inf below normal numbers."""

    @abstractmethod
    def reciprocal(self, state: Lowering, x: str) -> str:
        """1 / ``x`` in f32 to 1 ulp; what is below the normal numbers, operand or result, may be zero."""

    @abstractmethod
    def sqrt(self, state: Lowering, x: str, precise: bool) -> str:
        """The square root in f32: rounded correctly if ``precise``, else approximate."""

    @abstractmethod
    def rsqrt(self, state: Lowering, x: str) -> str:
        """The reciprocal square root in f32, approximate."""

    @abstractmethod
    def round_towards_zero(self, state: Lowering, x: str, source: Scalar, to: Scalar) -> str:
        """``x`` rounded towards zero: from integers of 32 and 64 bits or f64 to f32, from f32 to f16."""

    @abstractmethod
    def widen_e4m3(self, state: Lowering, pair: str) -> str:
        """The two f16 that equal two f8e4m3, the first in the lower byte of an i16; raises UnsupportedOp where the
        target has no such conversion."""

    @abstractmethod
    def pick_bytes(self, state: Lowering, low: str, high: str, places: int) -> str:
        """A word (i32) of four bytes of two others: each four bits of ``places``, the lowest first, are the number of a
        byte of ``low`` (0 to 3) or ``high`` (4 to 7)."""

    @abstractmethod
    def narrow_to_eight_bit(self, state: Lowering, low: str, high: str, to: Scalar) -> str:
        """The f8e4m3 or f8e5m2 nearest to two f32, the first in the lower byte (i16); raises UnsupportedOp where there
        is no such conversion."""

    # Debugging -----------------------------------------------------------------------------------------------

    @abstractmethod
    def print_line(self, state: Lowering, template: str, fields: Sequence[tuple[str, str]]) -> None:
        """Print by C's rules for printf: types (i32, i64, double) and values of ``fields`` into ``template``."""

    @abstractmethod
    def fail(self, state: Lowering, message: str, file: str, line: int, function: str) -> None:
        """Stop with an assertion failure; the texts are addresses of zero-terminated strings."""
