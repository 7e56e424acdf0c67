"""What an assembler makes of a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of one kernel. Figures are per thread, shared memory is static (dynamic is the launch's).

    ``spill_bytes``: stores plus loads that ptxas added for want of registers. ``log``: all that ptxas said.
    """

    image: bytes
    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    log: str
