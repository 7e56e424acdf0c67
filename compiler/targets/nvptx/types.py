"""How element types look in registers and in memory."""

from __future__ import annotations

from functools import lru_cache

from ...ir.types import Element, Pointer

GLOBAL_POINTER = "ptr addrspace(1)"
SHARED_POINTER = "ptr addrspace(3)"

_REGISTER = {
    "i1": "i1",
    "f16": "half",
    "bf16": "bfloat",
    "f32": "float",
    "f64": "double",
    "f8e4m3": "i8",
    "f8e5m2": "i8",
}


@lru_cache(maxsize=256)
def register_type(element: Element) -> str:
    """The LLVM type of one element in a register."""
    if isinstance(element, Pointer):
        return GLOBAL_POINTER
    return _REGISTER.get(element.name) or f"i{element.bits}"


@lru_cache(maxsize=256)
def memory_type(element: Element) -> str:
    """The LLVM type of one element in memory: booleans take a byte."""
    name = register_type(element)
    return "i8" if name == "i1" else name


#: Inline assembly constraint of each LLVM type; others travel as integers of their width.
CONSTRAINTS = {"i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d", GLOBAL_POINTER: "l"}
