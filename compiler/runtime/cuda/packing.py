"""Memory that the driver reads a launch from: its configuration, the kernel's parameters, pointers to each of them."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
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
_BLOCK = struct.Struct("4I4x")
#: What machine code reads of a launch, eight bytes each: whether its graph is being started, that graph or 0, the
#: stream for that; addresses of the configuration, the kernel and the parameters; the context to make current before,
#: or 0.
RECORD = ("BUSY", "GRAPH", "STREAM", "CONFIG", "FUNCTION", "PARAMETERS", "CONTEXT")
_RECORD, _GRAPH = struct.Struct(f"{len(RECORD)}Q"), struct.Struct("3Q")
_ATTRIBUTES = struct.Struct("QI4x")
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
    machine code reads (:mod:`.native`), as :data:`RECORD`.
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


def packing(
    signature: Sequence[ArgumentType], descriptors: int = 0, *, grid: bool = False
) -> tuple[struct.Struct, list[int]]:
    """The struct that packs a launch configuration and parameters, and the offset of each parameter in it.

    Of the configuration it takes three grid sizes, :func:`block_bytes`, the stream and :func:`attribute_bytes`.
    Parameters are those of the signature, then ``descriptors`` of 128 bytes, then, with ``grid``, three i32.
    """
    letters = ["Q" if kind.pointer else _LETTERS.get(kind.dtype, "H") for kind in signature]
    letters += [f"{DESCRIPTOR_BYTES}s"] * descriptors + ["i"] * (3 * grid)
    text, offsets = "@" + _CONFIG, []
    for letter in letters:
        if letter.endswith("s"):  # to struct bytes have no alignment
            text += f"{-struct.calcsize(text) % DESCRIPTOR_ALIGNMENT}x"
        text += letter
        offsets.append(struct.calcsize(text) - struct.calcsize(letter))
    return struct.Struct(text), offsets


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
