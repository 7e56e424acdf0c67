"""Why a schedule cannot be had: one rule for each option whose values are not all possible for every kernel.

What :class:`~..options.Schedule` itself refuses is possible nowhere; these rules know the hardware and the kernel. Who
compiles raises what they say, the spaces of the tuner leave such values out. A ring longer than shared memory is not
illegal: it gets as many slots as fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import IllegalSchedule
from ..hardware import MOST_THREADS, REGISTER_FILE, threads_of
from ..ir.core import Function, Op
from ..options import Schedule, effective_options
from ..tile.assembly import InlineAssembly
from ..tile.control import While
from ..tile.passes.dce import decided_by
from .arrays import READS

_READING = (*READS, InlineAssembly)
#: What makes a loop of its own in inline assembly.
_BRANCH = re.compile(r"\bbra\b")


@dataclass(frozen=True, slots=True)
class KernelTraits:
    """What of a kernel decides which schedules it can have. ``waits``: a program may wait for what another one writes:
    a loop, that of inline assembly too, goes on until something that it reads from memory, or may read, has changed."""

    waits: bool = False


def traits_of(function: Function) -> KernelTraits:
    """The traits of a kernel whose operations are known."""
    return KernelTraits(waits=any(_may_wait(op, function) for op in function.walk()))


def _may_wait(op: Op, function: Function) -> bool:
    if isinstance(op, InlineAssembly):
        return _BRANCH.search(op.text) is not None
    return isinstance(op, While) and _ends_by_memory(op, function)


def _ends_by_memory(loop: While, function: Function) -> bool:
    inside = {op for block in loop.blocks for op in block.walk()}
    return any(isinstance(op, _READING) for op in decided_by(function, *loop.deciding) & inside)


def has_room_for(schedule: Schedule, warps: int) -> bool:
    """Whether a CTA can have ``warps`` warps, of the registers that the schedule asks for."""
    threads = threads_of(warps)
    return threads <= MOST_THREADS and (schedule.maxnreg or 0) * threads <= REGISTER_FILE


def persistent(schedule: Schedule, traits: KernelTraits) -> IllegalSchedule | None:
    """A program that works on many tiles does so one after the other: another one must not wait for it."""
    if schedule.persistent and schedule.launch_cooperative_grid:
        return IllegalSchedule(
            "persistent = True is not possible with launch_cooperative_grid = True: all programs of the grid are to run"
            " at the same time, and a persistent program runs many of them in turn",
            hint="use persistent = False; a grid of as many programs as fit on the device can loop over the work",
        )
    if not schedule.persistent or not traits.waits:
        return None
    return IllegalSchedule(
        "persistent = True is not possible for a kernel with a loop that ends by what it reads from memory: its"
        " programs may wait for each other, and a persistent program runs many of them in turn",
        hint="use persistent = False",
    )


def maxnreg(schedule: Schedule, _: KernelTraits) -> IllegalSchedule | None:
    """The assembler takes the number as permission: with more registers than there are no CTA would start."""
    if has_room_for(schedule, schedule.num_warps):
        return None
    most = REGISTER_FILE // threads_of(schedule.num_warps) // 8 * 8
    return IllegalSchedule(
        f"maxnreg = {schedule.maxnreg} is not possible with num_warps = {schedule.num_warps}: a multiprocessor has"
        f" {REGISTER_FILE} registers",
        hint=f"use at most {most}, None, or fewer warps",
    )


#: The rules by option. Every value of the other options that Schedule takes is possible.
RULES: Mapping[str, Callable[[Schedule, KernelTraits], IllegalSchedule | None]] = {
    "persistent": persistent,
    "maxnreg": maxnreg,
}


def objection(schedule: Schedule, kind: str, traits: KernelTraits) -> IllegalSchedule | None:
    """Why a kernel with ``traits`` cannot have ``schedule`` on targets of this kind (``cpu``, ``cuda``), if it cannot.

    Options without effect there are not looked at.
    """
    rules = [rule for option, rule in RULES.items() if option in effective_options(kind)]
    return next((found for rule in rules if (found := rule(schedule, traits)) is not None), None)


def require_legal(schedule: Schedule, function: Function, kind: str) -> None:
    """Raise IllegalSchedule where a rule objects to ``schedule`` for ``function``."""
    found = objection(schedule, kind, traits_of(function))
    if found is not None:
        raise IllegalSchedule(f"{function.name}: {found.message}", hint=found.hint)
