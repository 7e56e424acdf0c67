"""What is known of one measured variant: its time and how it was taken, its code, where it runs, what bounds it.

Every field is known or None; nothing is guessed. :mod:`.gauge` makes a :class:`Measurement`, strategies, journals, the
database, profiles and pages read it.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from ..codec import Count, Document, Finite
from .instructions import InstructionMix
from .statistics import Interval

#: What keeps a variant from being faster, as far as can be told: the device's memory or arithmetic at their peak;
#: registers spilled to memory; too few programs for the device (parallelism); an unfilled last wave (tail); registers
#: or shared memory or the number of threads that leave too few warps on an SM; none of these, far from any peak
#: (latency).
Bound: TypeAlias = Literal[
    "memory", "compute", "spills", "parallelism", "tail", "registers", "shared memory", "threads", "latency"
]


class TimingProtocol(Document, frozen=True):
    """How a time was taken; times of two protocols are not compared.

    ``clock``: events on the device, or the host's clock around launches. ``cold``: the last-level cache was flushed
    before each launch. ``procedure``: alone, a "first look", or in "rounds" among others. ``rested``: before each
    launch of less than 4 ms, but the first, the device did nothing for as long, and its power limit lowered no clock.
    """

    noun: ClassVar[str] = "timing protocol"

    clock: Literal["device", "host"]
    cold: bool
    procedure: Literal["first look", "rounds"]
    rested: bool = False

    @property
    def text(self) -> str:
        """In words: ``device clock, cold cache, rested, first look``."""
        cache, rested = "cold cache" if self.cold else "warm cache", ["rested"] if self.rested else []
        return ", ".join([f"{self.clock} clock", cache, *rested, self.procedure])


class CodeFacts(Document, frozen=True):
    """What compiling a variant tells, before anything is measured.

    ``programs``: of one launch, before a persistent kernel shares them out. Of a GPU: ``threads`` of one program,
    helper warps included; ``registers`` and ``stack_bytes`` a thread; ``spill_bytes``: stores and loads for want of
    registers; ``shared_bytes`` a program, static and dynamic; ``slots`` of the longest ring that feeds products, 0
    without rings; ``resident_programs`` and ``resident_warps`` per SM, of ``most_warps``, and the ``limiter``
    of that (:mod:`deuteron.profiler.occupancy`); ``persistent``; ``instructions``, of the PTX. Of a CPU:
    ``vector_bytes`` of the registers that the code uses. ``code_bytes``: of the object file or cubin.
    """

    noun: ClassVar[str] = "code facts"

    programs: Count
    threads: Count | None = None
    registers: Count | None = None
    spill_bytes: Count | None = None
    stack_bytes: Count | None = None
    shared_bytes: Count | None = None
    slots: Count | None = None
    resident_programs: Count | None = None
    resident_warps: Count | None = None
    most_warps: Count | None = None
    limiter: str | None = None
    persistent: bool = False
    instructions: InstructionMix | None = None
    vector_bytes: Count | None = None
    code_bytes: Count | None = None

    @property
    def occupancy(self) -> float | None:
        """The part of an SM's warps that are there at once."""
        if self.resident_warps is None or not self.most_warps:
            return None
        return self.resident_warps / self.most_warps


class Measurement(Document, frozen=True):
    """One measured variant.

    ``flop_s`` and ``byte_s`` follow from the workload's formulas: operations and compulsory traffic over the median
    time. ``compute_share`` and ``memory_share`` are these over the device's peaks (:mod:`deuteron.profiler.specs`),
    None where no peak is known; with a warm cache the memory share may exceed 1. ``waves``: programs over how many the
    device holds at once (on a CPU: over its cores); ``tail``: the part of the device's time in those waves that is idle
    because the last one is not full, if all programs take equally long. ``sm_mhz``: median clock meanwhile.
    ``replay_ns``: of a short launch in a CUDA graph of many, by the device's clock with a warm cache
    (:mod:`.graph_replay`); never to be compared with ``time_ns``.
    """

    noun: ClassVar[str] = "measurement"

    time_ns: Interval
    protocol: TimingProtocol
    flop_s: Finite
    byte_s: Finite
    compute_share: Finite | None = None
    memory_share: Finite | None = None
    code: CodeFacts | None = None
    waves: Finite | None = None
    tail: Finite | None = None
    sm_mhz: Finite | None = None
    replay_ns: Interval | None = None
    bound: Bound | None = None

    @property
    def roofline_share(self) -> float | None:
        """The part of what the roofline allows: the greater of both shares; None unless both are known."""
        if self.compute_share is None or self.memory_share is None:
            return None
        return max(self.compute_share, self.memory_share)
