"""The memory of a launch: its arrays with margins around, and what a signature says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .families import RandomKernel
from .kinds import Array, Kind, encoded

#: The name of a type in signatures, where it is not its own.
IN_SIGNATURES = {"f8e5m2": "fp8e5", "f8e4m3": "fp8e4nv"}


@dataclass(frozen=True, eq=False)
class Memory:
    """An array with margins around; the kernel gets the address of the element at ``lead``."""

    name: str
    kind: Kind
    elements: Array
    lead: int

    #: Elements on either side, the byte that they are of, and how many times the computed error is allowed.
    MARGIN: ClassVar[int] = 64
    POISON: ClassVar[int] = 0x55
    ALLOWED: ClassVar[float] = 1.5

    @classmethod
    def around(cls, name: str, kind: Kind, values: Array, start: int) -> Memory:
        lead = cls.MARGIN + start
        elements = np.empty(lead + len(values) + cls.MARGIN, kind.memory)
        elements.view(np.uint8)[:] = cls.POISON
        elements[lead : lead + len(values)] = encoded(values, kind)
        return cls(name, kind, elements, lead)

    @property
    def aligned(self) -> bool:
        """Whether the argument is a multiple of 16 bytes, in an allocation of 256."""
        return self.lead * self.elements.itemsize % 16 == 0


def memory_of(kernel: RandomKernel) -> list[Memory]:
    """Every array of a launch before it, in the order of the parameters."""
    inputs = [Memory.around(x.name, x.kind, x.values, x.start) for x in kernel.inputs]
    return inputs + [Memory.around(o.name, o.kind, o.initial, o.start) for o in kernel.outputs]


def signature_of(kernel: RandomKernel) -> dict[str, str]:
    """The types of the arguments, with what a launch knows of them."""
    made = {}
    for memory in memory_of(kernel):
        name = IN_SIGNATURES.get(memory.kind.name, memory.kind.name)
        made[memory.name] = f"*{name}:16" if memory.aligned else f"*{name}"
    for name, value in kernel.numbers.items():
        made[name] = "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"
    return made
