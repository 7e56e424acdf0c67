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
from ...target import Target
from .cubin import Cubin
from .machine_code import waits_of

#: Registers are given to warps, so many to a thread at a time (CUDA C++ Programming Guide, occupancy).
REGISTER_STEP = 8
#: Loads under way on an SM, of those before, from which other code is better: with 1.5 a kernel had 0.99.
_CLEARLY = 1.5
#: Registers more than there were, at most, that code is told of.
_MOST_MORE = 2 * REGISTER_STEP
_PRODUCTS = re.compile(r"^\s*(?:@!?%p\d+ )?(?:wg)?mma", re.MULTILINE)
_THREADS = re.compile(r"^\.reqntid (\d+)$(?!\n\.minnctapersm)", re.MULTILINE)


def with_loads_together(made: Cubin, ptx: str, target: Target, assemble: Callable[[str], Cubin]) -> Cubin:
    """``made`` of ``ptx``, or what ``assemble`` makes of it where that is told of more registers and has more loads
    under way on an SM, without spills."""
    found = _THREADS.search(ptx)
    if found is None or made.registers is None or _PRODUCTS.search(ptx):
        return made
    threads, tried = int(found[1]), set[int]()
    best, least = made, _CLEARLY * _under_way(made, threads, target)
    for more in range(0, _MOST_MORE + 1, REGISTER_STEP):
        ctas = _resident_ctas(made.registers + more, threads, target)
        told = _most_registers(ctas, threads, target) if ctas else 0
        if told < made.registers + more or not waits_of(best.image, target.capability).in_turns:
            break
        if told in tried:
            continue
        tried.add(told)
        other = assemble(_THREADS.sub(rf"\g<0>\n.maxnreg {told}", ptx, count=1))
        flying = _under_way(other, threads, target)
        if not other.spill_bytes and flying > least:
            best, least = other, flying
    return best


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
