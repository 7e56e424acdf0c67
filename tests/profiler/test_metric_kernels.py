"""The kernel that tells metrics, run on the CPU, the ring that it writes to, and what NVTX tells."""

from __future__ import annotations

import ctypes
import random
import struct

import numpy as np
import pytest

from deuteron.compiler import compile, knobs
from deuteron.profiler.sources.kernels import tell_metric
from deuteron.profiler.sources.metric_kernels import FIRST, Ring, header_of
from deuteron.profiler.sources.native import native_callbacks
from deuteron.profiler.sources.nvtx import DOMAIN_NVTX, POP, PUSH_A, PUSH_EX, PUSH_W, UNNAMED, follower, injected

_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "u8": np.uint8, "i32": np.int32, "i64": np.int64}


def teller(dtype: str, as_float: bool, memory: np.ndarray):
    """A function that runs the kernel on an array of ``dtype``."""
    signature = {"value": f"*{dtype}", "count": "i32", "header": "i64"}
    signature |= {"ring": "*i64", "reserved": "*i64", "last": "i64"}
    kernel = compile(tell_metric, signature, {"FLOAT": as_float, "BLOCK": 128}, "cpu", num_warps=1)
    ring, reserved = memory[FIRST:], memory[:1]

    def tell(number: int, array: np.ndarray) -> None:
        kernel.run((1,), array, len(array), header_of(number, len(array)), ring, reserved, len(ring) - 1)

    return tell


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("as_float", [False, True], ids=["int64", "float64"])
def test_elements_arrive_as_they_were(dtype: str, as_float: bool) -> None:
    """Of every length, also across the end of the ring, and in the order of the entries."""
    rng, numbers = np.random.default_rng(1), random.Random(2)
    memory = np.zeros(FIRST + 1024, np.int64)
    ring, tell = Ring(memory), teller(dtype, as_float, memory)
    for number in range(1, 60):
        sent = {}
        for entry in range(number * 10, number * 10 + numbers.randint(0, 3)):
            array = (rng.random(numbers.choice([1, 2, 127, 128, 129, 300])) * 100).astype(_TYPES[dtype])
            sent[entry] = array
            tell(entry, array)
        got = {entry: words.view(np.float64) if as_float else words for entry, words in ring.take()}
        assert list(got) == list(sent)
        for entry, array in sent.items():
            np.testing.assert_array_equal(got[entry], array.astype(np.float64 if as_float else np.int64))
    assert not ring.lost and not memory[FIRST:].any()


def test_an_entry_is_read_when_its_header_is_there() -> None:
    memory = np.zeros(FIRST + 1024, np.int64)
    ring = Ring(memory)
    memory[0], memory[FIRST + 1], memory[FIRST + 2 : FIRST + 4] = 4, 11, (header_of(6, 1), 22)
    assert list(ring.take()) == [], "the first is not complete"
    memory[FIRST] = header_of(5, 1)
    assert [(number, words.tolist()) for number, words in ring.take()] == [(5, [11]), (6, [22])]


def test_what_was_overwritten_is_not_read() -> None:
    memory = np.zeros(FIRST + 1024, np.int64)
    ring, tell = Ring(memory), teller("i64", False, memory)
    for number in range(1, 10):
        tell(number, np.full(300, number, np.int64))
    assert list(ring.take()) == [] and ring.lost
    tell(77, np.array([5]))
    assert [(number, words.tolist()) for number, words in ring.take()] == [(77, [5])]


def test_a_kernel_that_marks_tells_nothing() -> None:
    memory = np.zeros(FIRST + 128, np.int64)
    teller("i64", False, memory)(1, np.zeros(0, np.int64))
    assert not memory.any()


class Calls:
    """Calls of NVTX as CUPTI hands them to the native callback."""

    def __init__(self) -> None:
        self.log: list[str | None] = []
        self.callbacks = native_callbacks(1 << 20)
        self.called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(
            self.callbacks.called
        )
        self.kept: list[object] = []

    def call(self, number: int, parameters: int) -> None:
        held = ctypes.c_uint64(parameters)
        data = (ctypes.c_uint64 * 3)(0, ctypes.addressof(held), 0)
        self.called(None, DOMAIN_NVTX, number, ctypes.addressof(data))

    def text(self, buffer: ctypes.Array) -> int:
        self.kept.append(buffer)
        return ctypes.addressof(buffer)

    def attributes(self, kind: int, message: int) -> int:
        # nvtxEventAttributes_t, version 2: 48 bytes
        packed = struct.pack("<HHIiIiiQiiQ", 2, 48, 0, 0, 0, 0, 0, 0, kind, 0, message)
        return self.text(ctypes.create_string_buffer(packed, len(packed)))


def test_ranges_arrive_with_their_names() -> None:
    calls = Calls()
    calls.callbacks.follow_ranges(follower(calls.log.append, lambda: calls.log.append(None)))
    try:
        ascii_, wide = ctypes.create_string_buffer("größer".encode()), ctypes.create_unicode_buffer("weit")
        calls.call(PUSH_A, calls.text(ascii_))
        calls.call(PUSH_W, calls.text(wide))
        calls.call(PUSH_EX, calls.attributes(1, calls.text(ascii_)))
        calls.call(PUSH_EX, calls.attributes(2, calls.text(wide)))
        calls.call(PUSH_EX, calls.attributes(3, 12345))  # a registered string
        calls.call(PUSH_A, 0)
        calls.call(POP, 0)
        assert calls.log == ["größer", "weit", "größer", "weit", UNNAMED, UNNAMED, None]
    finally:
        calls.callbacks.follow_ranges(None)
    calls.call(POP, 0)
    assert len(calls.log) == 7


def test_nvtx_loads_libcupti_while_a_profiler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    with injected("libcupti.so.13"):
        assert knobs.nvtx_injection.variables() == {"NVTX_INJECTION64_PATH": "libcupti.so.13"}
    assert knobs.nvtx_injection.variables() == {}
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/their/own.so")
    with injected("libcupti.so.13"):
        assert knobs.nvtx_injection.variables() == {"NVTX_INJECTION64_PATH": "/their/own.so"}
