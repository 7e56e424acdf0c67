"""What generated code may use of a processor: the width and number of vector registers, and products of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...ir.types import BF16, I16, Element
from ...llvm import driver


@dataclass(frozen=True, slots=True)
class Processor:
    """Vector registers of ``vector_bytes`` each, ``registers`` of them, and how pairs of 16-bit numbers are multiplied.

    ``bf16_pairs``: AVX512-BF16. ``int16_pairs``: "dot" multiplies pairs and accumulates (AVX512-VNNI), "madd" leaves
    the sum to a second instruction (AVX2); "" if there is neither.
    """

    vector_bytes: int
    registers: int
    bf16_pairs: bool = False
    int16_pairs: Literal["dot", "madd", ""] = ""

    def multiplies_pairs(self, elem: Element) -> bool:
        """Whether one instruction sums the products of two neighbours of ``elem`` in 32 bits."""
        return (elem == BF16 and self.bf16_pairs) or (elem == I16 and self.int16_pairs != "")


def host_processor() -> Processor:
    """This computer's processor."""
    if driver.host_has("avx512f"):
        short = driver.host_has("avx512vl") and driver.host_has("avx512bw")  # narrow tiles need shorter vectors
        dot: Literal["dot", "madd"] = "dot" if driver.host_has("avx512vnni") else "madd"
        return Processor(64, 32, short and driver.host_has("avx512bf16"), dot if short else "")
    if driver.host_has("avx2"):
        return Processor(32, 16, int16_pairs="madd")
    return Processor(16, 32 if driver.host_machine().triple.startswith(("aarch64", "arm64")) else 16)
