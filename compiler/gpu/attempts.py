"""What is tried next where a kernel does not fit: into shared memory, or into the registers of its warps.

The GPU stage runs its steps under some :class:`AttemptLimits`; what became of that decides about the next ones:

1. Waits for products that were spared at the cost of shared memory come back first,
2. then rings lose a slot at a time, down to none at all.
3. What fits may lose some slots more, once, where a streaming multiprocessor (SM) then holds another CTA.

Registers are counted by the assembler, long after that. A kernel that keeps much of them in local memory is made again
with twice the warps (:mod:`deuteron.compiler.runtime.variant.pipeline`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .estimates import FEW_WARPS, MOST_WARPS, MUCH_SPILLED

#: More slots than any schedule asks for.
MOST_SLOTS = 64


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """What an attempt may make use of."""

    #: Slots of a ring, at most.
    slots: int = MOST_SLOTS
    #: Whether waits for products may be spared at the cost of shared memory.
    spare_waits: bool = True
    #: Whether rings may yet lose slots for an SM to hold another CTA.
    make_way: bool = True


@dataclass(frozen=True, slots=True)
class TooLarge:
    """An attempt that needs more shared memory than there is."""

    #: Of the longest ring; 0 without rings.
    slots: int
    #: Whether waits were spared at the cost of shared memory.
    spared_waits: bool


@dataclass(frozen=True, slots=True)
class Fits:
    """An attempt that has led to a kernel."""

    #: How many slots rings may have for an SM to hold another CTA; None where that is of no use, or not to be had.
    slots_for_another_cta: int | None


def next_limits(limits: AttemptLimits, outcome: TooLarge | Fits) -> AttemptLimits | None:
    """What to try after an attempt under ``limits``; None where that was the last one."""
    match outcome:
        case TooLarge(spared_waits=True):
            return replace(limits, spare_waits=False)
        case TooLarge(slots=slots) if slots:
            return replace(limits, slots=slots - 1)
        case Fits(slots_for_another_cta=int(slots)) if limits.make_way:
            return replace(limits, slots=slots, make_way=False)
    return None


def next_warps(warps: int, spilled: int) -> int | None:
    """How many warps to try after ``warps``, of which a thread has ``spilled`` bytes of registers in local memory; None
    where more are not worth it."""
    bearable = 0 if warps <= FEW_WARPS else MUCH_SPILLED
    return 2 * warps if spilled > bearable and 2 * warps <= MOST_WARPS else None


def spills_less(spilled: int, before: int) -> bool:
    """Whether code of twice the warps, of which a thread has ``spilled`` bytes in local memory, is to be taken: only if
    it had twice as much ``before``."""
    return 2 * spilled <= before
