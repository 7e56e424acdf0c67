"""What holds for every GPU that code is made for: how threads are grouped, and what each of them has.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; PTX ISA where it is named. What
differs between architectures is in :mod:`.target`.
"""

from __future__ import annotations

#: Threads of a warp, which run the same instruction: lanes; and the bits of their number.
LANE_BITS = 5
LANES = 1 << LANE_BITS
#: Warps of a warp group: what wgmma and setmaxnreg are made for (PTX ISA, "wgmma.mma_async", "setmaxnreg").
WARPS_PER_GROUP = 4
#: Threads of a CTA, at most.
MOST_THREADS = 1024

#: Bits of a register.
REGISTER_BITS = 32
#: Registers of a thread, at most.
MOST_REGISTERS = 255
#: Registers of a multiprocessor, all of which one CTA may have.
REGISTER_FILE = 64 * 1024

#: Bytes that a thread reads or writes at once, at most, in any memory, and to which their address is aligned then (PTX
#: ISA, "ld": v4.b32; "cp.async": 16). Rows of the matrices of ldmatrix are as long, and so is what swizzles move.
VECTOR_BYTES = 16
#: Shared memory: its banks, the bytes that each gives at once, and those of all, one wave.
BANKS = 32
BANK_BYTES = 4
WAVE_BYTES = BANKS * BANK_BYTES
#: Bytes that caches move at once, and those that have one tag.
SECTOR_BYTES = 32
LINE_BYTES = 128
#: Bytes to which the copy engine wants the array, all its strides but the innermost, and where a box begins in a row
#: aligned: with a start between, it stops with an illegal instruction (CUDA driver API, cuTensorMapEncodeTiled; seen on
#: an H100).
TENSOR_MAP_ALIGNMENT = 16
#: Bytes to which a box in shared memory is aligned (PTX ISA, "cp.async.bulk.tensor").
BOX_ALIGNMENT = 128


def threads_of(warps: int) -> int:
    """Threads of so many warps."""
    return LANES * warps
