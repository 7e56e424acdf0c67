"""Numbers by which the GPU stage decides before code is generated: registers, warps and CTAs.

How many registers a thread needs is known when the assembler is done. Until then each of these stands for it, or for
what was measured where code has more of it or less. What GPUs have for certain is in :mod:`..hardware`.
"""

from __future__ import annotations

from ..ir.types import Tile

#: Registers that a thread has beside those of accumulators: operands, addresses, masks.
OTHER_REGISTERS = 80
#: Those of a consumer that finds its operands in shared memory: addresses, counters, what is on its way out.
LEAST_REGISTERS = 40
#: Those that accumulators and operands of a rotated loop leave to addresses and exponents.
ROTATED_OTHER_REGISTERS = 40
#: What those take at most where the operand is of 8 bits: shuffles bring it to its place between the products, for
#: longer than these take. Seen on an H200: attention in tiles of 64 by 64 on four warps takes 0.94 to 1.00 of its time,
#: in tiles of 128 by 64, which are 144 registers, 1.3.
ROTATED_REGISTERS_OF_8_BITS = 96
#: Those for tiles that have come early, or have not left yet, at most.
HELD_REGISTERS = 48
#: Those that a block with products has for such tiles and for what its loop carries.
CARRIED_REGISTERS = 152
#: Those of the accumulators in a loop of one group of warps, up to which a product begins before what is made of the
#: one before it. With heads of 128, which have 128, the gradient of attention's queries takes 1.01 and 1.03 of its time
#: (benchmarks/results/2026-11-29-h200-turns, gradients.txt).
READY_REGISTERS_OF_A_GROUP = 112
#: Those of the accumulators in a loop, up to which a product goes on into the next iteration: with more of them in use
#: ptxas spills, and waits for each product by itself (its warning C7512).
GOING_ON_REGISTERS = 192
#: Those that a producer that records has besides: addresses, masks and the clock.
RECORD_REGISTERS = 16

#: Accumulators of a thread of one group of warps that makes left operands, from which on two groups are better.
ACCUMULATORS_OF_TWO = 128
#: With more warps than these a thread has fewer than 128 registers, and a CTA holds no more than before.
MOST_WARPS = 16
#: Bytes of a thread's registers that ptxas stores to local memory or loads from there, counted once for each
#: instruction. Some kernels of flash-linear-attention that spill this much take a quarter to two fifths of their time
#: with twice the warps (benchmarks/results/2026-11-27-h100-states, fla-flight.json and fla-warps.json).
MUCH_SPILLED = 512
#: Of kernels of so few warps any spill is much: 17 of 20 launches of that library take 0.60 to 0.92 of their time with
#: twice the warps, the others 1.01 to 1.07. With little to spill of four warps some take up to twice their time, where
#: programs are many (benchmarks/results/2026-11-27-h200-spills, spills.json). So a batch gets more warps than these
#: only where it is of twice the registers: less of it may be better in local memory.
FEW_WARPS = 2

#: Accumulators of a thread, up to which a warp group's products are too short to hide what is between them.
FEW_ACCUMULATORS = 16
#: Products of a loop up to which one of them runs while threads work on the result of the other.
TURNED_PRODUCTS = 2
#: Inner dimension of a product, after which the tensor cores have caught up with the copies of their CTA.
SHORT_DEPTH_BYTES = 64

#: Cycles of the products of an iteration up to which a copy takes longer than they do. On an H200 a product of 4096^3
#: takes 0.84 of its time in tiles of 128 by 128 by 64 (512 cycles) with five slots for two warp groups, not three,
#: and as long as before in tiles of 128 by 256 by 64 (benchmarks/results/2026-11-29-h200-slots, slots.txt).
SHORT_ITERATION_CYCLES = 768

#: What an SM with warp groups does in a cycle. Multiply-adds of tensor cores, times the bytes of an element (NVIDIA
#: H100 datasheet: 989.4 TFLOP/s of 16 bits by 132 SMs at 1.83 GHz); numbers of special functions, such as exponents,
#: and of other instructions (CUDA C++ Programming Guide, "Arithmetic Instructions", compute capability 9.0).
PRODUCT_BYTES_A_CYCLE = 4096
SPECIAL_A_CYCLE = 16
NUMBERS_A_CYCLE = 128


def product_cycles(sums: Tile, left: Tile) -> float:
    """Cycles of the tensor cores of an SM, at best, for a product that adds to ``sums``; ``left``: its left operand."""
    return sums.size * left.shape[1] * left.elem.bytes / PRODUCT_BYTES_A_CYCLE
