"""Memory-level parallelism: more registers for kernels whose loops wait for one load before they begin the next.

To have few registers, ptxas lets a loop wait for what one load brings, use it, and only then begin the next one in the
same registers, even where the SM would hold as many CTAs with more of them. It does not where it is told how many there
may be: as many as leave room for the CTAs that there are, or for those that a step or two more leave. The code is kept
that has the most loads under way on an SM (:mod:`.machine_code`), if they are clearly more. Of the speed of sums of
exponentials it is worth 1.15, of norms of groups 1.12, of sums of rows 1.22 and 1.23 (benchmarks/results/
2026-11-30-h200-loads). Loops around products wait for other things: one with weights of 4 bits took 1.37 of its time.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...hardware import LANES, MOST_REGISTERS
from ...target import REGISTER_UNIT, Target
from .cubin import Cubin
from .machine_code import waits_of

#: Registers are given to warps, so many to a thread at a time (CUDA C++ Programming Guide, occupancy).
REGISTER_STEP = REGISTER_UNIT // LANES
#: Loads under way on an SM, of those before, from which other code is better: with 1.5 a kernel had 0.99.
_CLEARLY = 1.5
#: Registers more than there were, by which CTAs are counted; code is told of all that those leave.
_MORE = (0, REGISTER_STEP, 2 * REGISTER_STEP)
_PRODUCTS = re.compile(r"^\s*(?:@!?%p\d+ )?(?:wg)?mma", re.MULTILINE)
_THREADS = re.compile(r"^\.reqntid (\d+)$(?!\n\.minnctapersm)", re.MULTILINE)


def with_loads_together(made: Cubin, ptx: str, target: Target, assemble: Callable[[str], Cubin]) -> Cubin:
    """``made`` of ``ptx``, or what ``assemble`` makes of it where that is told of more registers and has more loads
    under way on an SM, without spills."""
    found = _THREADS.search(ptx)
    if found is None or made.registers is None or _PRODUCTS.search(ptx):
        return made
    threads, before = int(found[1]), waits_of(made.image, target.capability)
    told = _told(made.registers, threads, target) if before.in_turns else []
    best, least = made, _CLEARLY * _under_way(made, threads, target)
    # Where the most registers spare no waiting, fewer do not: loads may need what others brought.
    for registers in (*told[-1:], *told[:-1]):
        other = assemble(_THREADS.sub(rf"\g<0>\n.maxnreg {registers}", ptx, count=1))
        waits, flying = waits_of(other.image, target.capability), _under_way(other, threads, target)
        if best is made and waits.turns >= before.turns:
            break
        if not other.spill_bytes and flying > least:
            best, least = other, flying
    return best


def _told(registers: int, threads: int, target: Target) -> list[int]:
    """Of how many registers code is told that takes so many, from the fewest on."""
    ctas = [_resident_ctas(registers + more, threads, target) for more in _MORE]
    return sorted({_most_registers(each, threads, target) for each in ctas if each})


def _under_way(made: Cubin, threads: int, target: Target) -> float:
    """Loads of a thread's at the same time, of all CTAs of an SM that there are with so many registers."""
    waits = waits_of(made.image, target.capability)
    return waits.together * _resident_ctas(made.registers or MOST_REGISTERS, threads, target)


def _resident_ctas(registers: int, threads: int, target: Target) -> int:
    """CTAs that an SM holds, as far as threads and registers go."""
    warps = threads // LANES
    return min(target.limits.blocks, target.limits.warps_with(registers) // warps)


def _most_registers(ctas: int, threads: int, target: Target) -> int:
    """Registers that a thread may have where an SM holds so many CTAs."""
    steps = range(REGISTER_STEP, MOST_REGISTERS + REGISTER_STEP, REGISTER_STEP)
    return min(MOST_REGISTERS, max((r for r in steps if _resident_ctas(r, threads, target) >= ctas), default=0))
