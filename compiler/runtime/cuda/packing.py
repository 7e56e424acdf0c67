"""Memory that the driver reads a launch from: its configuration, the kernel's parameters, pointers to each of them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...launch_recipe import LaunchRecipe
from ...signature import ArgumentType

# struct's letters for kernel parameters; i1 travels as a byte, bf16 and f8 (:mod:`...scalar_arguments`) as bits.
_LETTERS = {
    "i1": "?",
    "i8": "b",
    "i16": "h",
    "i32": "i",
    "i64": "q",
    "u8": "B",
    "u16": "H",
    "u32": "I",
    "u64": "Q",
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
# cuda.h, CUlaunchConfig: three grid sizes, (three block sizes, shared bytes), stream, (attributes, their number). What
# is in brackets is the same at every launch and packed as bytes: 6 items instead of 10 save 0.06 of 0.26 us.
_CONFIG = "3I20sQ16s"
_CONFIG_OFFSETS = (0, 4, 8, 32)  # of what differs: the sizes, the stream
_BLOCK = struct.Struct("4I4x")
#: What machine code reads of a launch, eight bytes each: whether its graph is being started, that graph or 0, the
#: stream for that; addresses of the configuration, the kernel and the parameters; the context to make current before,
#: or 0.
RECORD = ("BUSY", "GRAPH", "STREAM", "CONFIG", "FUNCTION", "PARAMETERS", "CONTEXT")
_RECORD, _GRAPH = struct.Struct(f"{len(RECORD)}Q"), struct.Struct("3Q")
_ATTRIBUTES = struct.Struct("QI4x")
#: What machine code reads of a kernel whose launches it packs, eight bytes each: the context to make current before, or
#: 0; the kernel; where a configuration is that has all but sizes and stream; bytes of configuration and parameters; how
#: many values there are. Then, of each value, what :data:`PLANNED` names: where it goes, how (:data:`PASSED`), its
#: bytes, and for integers the least and the greatest.
PLAN = ("CONTEXT", "FUNCTION", "CONFIG", "SIZE", "COUNT", "VALUES")
PLANNED = ("OFFSET", "HOW", "WIDTH", "LOW", "HIGH")
PASSED = {"AS_ADDRESS": 0, "AS_INTEGER": 1, "AS_FLOAT": 2, "AS_TRUTH": 3, "AS_BYTES": 4}
_PLAN, _PLANNED = struct.Struct(f"{len(PLAN) - 1}Q"), struct.Struct("3Q2q")
SIZES = {"CONFIG_BYTES": struct.calcsize(_CONFIG), "VALUE_BYTES": _PLANNED.size}
#: Bytes of configuration and parameters that machine code puts on a stack, with as many of pointers: threads may have
#: stacks of 32 KB, and parameters may be as many bytes.
_MOST_ON_STACK = 4096
# cuda.h, CUtensorMap: 128 bytes at multiples of 64.
DESCRIPTOR_BYTES = 128
DESCRIPTOR_ALIGNMENT = 64
# cuda.h, CUlaunchAttribute: its id, then a union of 64 bytes at offset 8, here up to three numbers.
_ATTRIBUTE = struct.Struct("I4x3I52x")
_COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
_CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class ArgumentPack(bytearray):
    """Memory for one launch: its CUlaunchConfig, the parameters after it, and pointers to each parameter, which the
    driver takes as an array. It begins at a multiple of 64.

    ``config`` and ``arguments`` are addresses as the driver is called with them. The bytes of the pack itself are what
    machine code reads (:func:`.native.launch_of`), as :data:`RECORD`.
    """

    __slots__ = ("buffer", "config", "arguments", "__weakref__")

    def __init__(self, size: int, offsets: Sequence[int], function: int = 0, context: int = 0) -> None:
        memory = ctypes.create_string_buffer(size + DESCRIPTOR_ALIGNMENT)
        start = -ctypes.addressof(memory) % DESCRIPTOR_ALIGNMENT
        aligned = (ctypes.c_char * size).from_buffer(memory, start)
        base = ctypes.addressof(aligned)
        pointers = (ctypes.c_void_p * max(len(offsets), 1))(*[base + o for o in offsets])
        self.buffer = memoryview(aligned)
        self.config = ctypes.byref(aligned)
        self.arguments = ctypes.byref(pointers)
        super().__init__(_RECORD.pack(0, 0, 0, base, function, ctypes.addressof(pointers), context))

    def start_graph(self, graph: int, stream: int) -> None:
        """Let machine code start an executable graph of this launch instead."""
        self[: _GRAPH.size] = _GRAPH.pack(0, graph, stream)


def address_argument(address: int) -> Any:
    """An address as an argument for the driver. Those of ``byref`` are what ctypes converts fastest: of c_void_p it
    makes one of them at every call, which takes 0.1 us for three."""
    return ctypes.byref(ctypes.c_char.from_address(address))


@dataclass(frozen=True)
class Layout:
    """Where a launch's configuration and a kernel's parameters are in memory that the driver reads.

    ``struct`` packs them: of the configuration three grid sizes, :func:`block_bytes`, the stream and
    :func:`attribute_bytes`, then the parameters. ``letters`` and ``offsets``: struct's letter of each parameter, and
    where it is.
    """

    struct: struct.Struct
    letters: Sequence[str]
    offsets: Sequence[int]

    @property
    def is_plannable(self) -> bool:
        """Whether machine code can pass all parameters: floats of 16 bits it cannot, and many take too much stack."""
        return "e" not in self.letters and self.struct.size <= _MOST_ON_STACK


def layout_of(signature: Sequence[ArgumentType], descriptors: int = 0, *, grid: bool = False) -> Layout:
    """That of a kernel's parameters: those of the signature, then ``descriptors`` of 128 bytes, then, with ``grid``,
    three i32."""
    letters = ["Q" if kind.pointer else _LETTERS.get(kind.dtype, "H") for kind in signature]
    letters += [f"{DESCRIPTOR_BYTES}s"] * descriptors + ["i"] * (3 * grid)
    text, offsets = "@" + _CONFIG, []
    for letter in letters:
        if letter.endswith("s"):  # to struct bytes have no alignment
            text += f"{-struct.calcsize(text) % DESCRIPTOR_ALIGNMENT}x"
        text += letter
        offsets.append(struct.calcsize(text) - struct.calcsize(letter))
    return Layout(struct.Struct(text), letters, offsets)


class PackingPlan(bytearray):
    """What machine code that is given the values of a launch has to know of its kernel (:data:`PLAN`), whose layout is
    plannable."""

    __slots__ = ("_kept",)

    def __init__(self, layout: Layout, function: int, context: int, block: bytes, attributes: bytes) -> None:
        self._kept = configuration = ctypes.create_string_buffer(struct.calcsize(_CONFIG))
        struct.pack_into(f"@{_CONFIG}", configuration, 0, 0, 0, 0, block, 0, attributes)
        letters, offsets = ("I", "I", "I", "Q", *layout.letters), (*_CONFIG_OFFSETS, *layout.offsets)
        head = _PLAN.pack(context, function, ctypes.addressof(configuration), layout.struct.size, len(letters))
        super().__init__(head + b"".join(map(_planned, letters, offsets)))


def _planned(letter: str, offset: int) -> bytes:
    """What a plan says of one value."""
    width = struct.calcsize(letter)
    low, high, how = 0, 0, {"Q": "ADDRESS", "f": "FLOAT", "d": "FLOAT", "?": "TRUTH"}.get(letter, "INTEGER")
    if letter.endswith("s"):
        how = "BYTES"
    elif how == "INTEGER":
        low = -1 << 8 * width - 1 if letter.islower() else 0
        high = low + (1 << 8 * width) - 1
    return _PLANNED.pack(offset, PASSED[f"AS_{how}"], width, low, high)


def block_bytes(threads: int, shared: int) -> bytes:
    """What a configuration says of a program: its threads, along the first axis, and bytes of shared memory."""
    return _BLOCK.pack(threads, 1, 1, shared)


def attribute_bytes(attributes: ctypes.Array[ctypes.c_char] | None) -> bytes:
    """What a configuration says of launch attributes: where they are, if there are any."""
    if attributes is None:
        return _ATTRIBUTES.pack(0, 0)
    return _ATTRIBUTES.pack(ctypes.addressof(attributes), len(attributes) // _ATTRIBUTE.size)


def launch_attributes(recipe: LaunchRecipe) -> ctypes.Array[ctypes.c_char] | None:
    """The attributes that a recipe's launches have, one after the other; None without any."""
    packed = b""
    if recipe.cluster > 1:  # programs along the first grid axis
        packed += _ATTRIBUTE.pack(_CLUSTER_DIMENSION, recipe.cluster, 1, 1)
    if recipe.cooperative:
        packed += _ATTRIBUTE.pack(_COOPERATIVE, 1, 0, 0)
    if recipe.programmatic:
        packed += _ATTRIBUTE.pack(_PROGRAMMATIC, 1, 0, 0)
    return ctypes.create_string_buffer(packed, len(packed)) if packed else None
