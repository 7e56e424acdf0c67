"""The native callbacks, driven as CUPTI drives them: buffers, launches, nodes of graphs and calls."""

from __future__ import annotations

import ctypes
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from deuteron.profiler.sources import callbacks as callback_text
from deuteron.profiler.sources.native import NativeCallbacks, native_callbacks, thread_cell

REQUESTED = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
BUFFER_BYTES = 1 << 16


@pytest.fixture
def callbacks() -> NativeCallbacks:
    found = native_callbacks(BUFFER_BYTES)
    thread_cell()
    with found.take_buffers():
        found.take_launches()
        found.take_calls()
        found.take_nodes()
    found.main.value = 0
    return found


def fill(callbacks: NativeCallbacks, data: bytes) -> None:
    """What CUPTI does: ask for a buffer, fill it, hand it back."""
    address, size, limit = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(99)
    REQUESTED(callbacks.requested)(ctypes.byref(address), ctypes.byref(size), ctypes.byref(limit))
    assert size.value == BUFFER_BYTES
    assert limit.value == 0
    assert address.value is not None and address.value % 8 == 0
    ctypes.memmove(address.value, data, len(data))
    COMPLETED(callbacks.completed)(None, 0, address.value, size.value, len(data))


def launch(
    callbacks: NativeCallbacks,
    correlation: int,
    site: int = callback_text.API_ENTER,
    kept: ctypes.c_uint64 | None = None,
) -> None:
    """What CUPTI does on entry to a driver call and on exit from it."""
    data = (ctypes.c_uint32 * 20)()
    data[callback_text.CALLBACK_SITE_OFFSET // 4] = site
    data[callback_text.CORRELATION_ID_OFFSET // 4] = correlation
    if kept is not None:
        ctypes.c_uint64.from_buffer(data, callback_text.CORRELATION_DATA_OFFSET).value = ctypes.addressof(kept)
    LAUNCH(callbacks.called)(None, 1, 307, ctypes.addressof(data))


def test_buffers_come_back_in_order(callbacks: NativeCallbacks) -> None:
    for number in range(5):
        fill(callbacks, bytes([number]) * 8)
    fill(callbacks, b"")
    with callbacks.take_buffers() as views:
        assert [bytes(view) for view in views] == [bytes([number]) * 8 for number in range(5)]
    with callbacks.take_buffers() as views:
        assert views == []


def test_buffers_from_many_threads_are_all_there(callbacks: NativeCallbacks) -> None:
    seen: list[int] = []
    done = threading.Event()

    def produce(number: int) -> None:
        for i in range(300):
            fill(callbacks, (number * 1000 + i).to_bytes(8, "little"))

    def consume() -> None:
        while True:
            last = done.is_set()
            with callbacks.take_buffers() as views:
                seen.extend(int.from_bytes(bytes(view), "little") for view in views)
            if last:
                return

    producers = [threading.Thread(target=produce, args=(i,)) for i in range(4)]
    consumer = threading.Thread(target=consume)
    for thread in (*producers, consumer):
        thread.start()
    for thread in producers:
        thread.join()
    done.set()
    consumer.join()
    assert sorted(seen) == [number * 1000 + i for number in range(4) for i in range(300)]


def test_launches_are_logged_with_their_threads_number(callbacks: NativeCallbacks) -> None:
    launch(callbacks, 1)  # no number yet
    cell = thread_cell()
    launch(callbacks, 1)
    cell.value = 7
    launch(callbacks, 2)
    launch(callbacks, 3, site=1)  # the exit of a call
    cell.value = 2**32 - 1
    launch(callbacks, 2**32 - 1)

    def elsewhere() -> None:
        launch(callbacks, 4)
        thread_cell().value = 9
        launch(callbacks, 5)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    cell.value = 0
    launch(callbacks, 6)
    assert callbacks.take_launches().tolist() == [[2, 7], [2**32 - 1, 2**32 - 1], [5, 9]]
    assert callbacks.take_launches().shape == (0, 2)


def test_threads_without_a_cell_or_with_0_in_it_have_the_number_of_the_main_thread(callbacks: NativeCallbacks) -> None:
    def elsewhere() -> None:
        launch(callbacks, 1)
        callbacks.main.value = 5
        launch(callbacks, 2)
        thread_cell()
        launch(callbacks, 3)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert callbacks.take_launches().tolist() == [[2, 5], [3, 5]]


def test_nodes_of_graphs_are_logged_with_what_they_are_copies_of(callbacks: NativeCallbacks) -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64))
    def id_of(node: int, to: Any) -> int:
        to[0] = node + 2**40
        return 0

    def made(event: int, node: int, original: int = 0) -> None:
        graph = (ctypes.c_uint64 * 8)()
        graph[callback_text.NODE_OFFSET // 8], graph[callback_text.ORIGINAL_NODE_OFFSET // 8] = node, original
        resource = (ctypes.c_uint64 * 3)(0, 0, ctypes.addressof(graph))
        LAUNCH(callbacks.called)(None, callback_text.DOMAIN_RESOURCE, event, ctypes.addressof(resource))

    callbacks.name_nodes(ctypes.cast(id_of, ctypes.c_void_p).value)
    thread_cell().value = 7
    before = time.perf_counter_ns()
    made(callback_text.NODE_CREATED, 11, original=99)
    between = time.perf_counter_ns()
    made(callback_text.NODE_CLONED, 12, original=11)
    *nodes, times = zip(*callbacks.take_nodes().tolist(), strict=True)
    assert nodes == [(2**40 + 11, 2**40 + 12), (0, 2**40 + 11), (7, 7)]
    assert before <= times[0] <= between <= times[1] <= time.perf_counter_ns()
    assert len(callbacks.take_launches()) == 0


def test_the_log_grows_over_many_chunks_and_threads(callbacks: NativeCallbacks) -> None:
    per_thread = callback_text.CHUNK_ENTRIES // 2 + 7

    def produce(number: int) -> None:
        thread_cell().value = number
        for i in range(per_thread):
            launch(callbacks, number * 10**6 + i)

    threads = [threading.Thread(target=produce, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    parts = [callbacks.take_launches()]
    for thread in threads:
        thread.join()
    parts.append(callbacks.take_launches())
    log = np.concatenate(parts)
    assert len(log) == 3 * per_thread
    for number in (1, 2, 3):
        ids = log[log[:, 1] == number, 0]
        assert np.array_equal(ids, np.arange(per_thread) + number * 10**6)


def test_calls_are_logged_with_thread_and_times_while_a_trace_is_recorded(callbacks: NativeCallbacks) -> None:
    kept = ctypes.c_uint64()
    cell = thread_cell()
    launch(callbacks, 1, kept=kept)
    callbacks.trace(True)
    launch(callbacks, 1, site=1, kept=kept)  # began before anybody asked for times
    cell.value = 7
    try:
        before = time.perf_counter_ns()
        launch(callbacks, 2, kept=kept)
        launch(callbacks, 2, site=1, kept=kept)
        after = time.perf_counter_ns()

        def elsewhere() -> int:
            other = ctypes.c_uint64()
            launch(callbacks, 3, kept=other)  # this thread has no cell: its place is not known
            launch(callbacks, 3, site=1, kept=other)
            return threading.get_native_id()

        with ThreadPoolExecutor(1) as pool:
            thread = pool.submit(elsewhere).result()
    finally:
        callbacks.trace(False)
        cell.value = 0
    launch(callbacks, 4, site=1, kept=kept)
    calls = callbacks.take_calls()
    assert calls[["id", "number", "thread", "call"]].tolist() == [
        (2, 7, threading.get_native_id(), 307), (3, 0, thread, 307),
    ]  # fmt: skip
    assert before <= calls["begin"][0] <= calls["end"][0] <= after <= calls["begin"][1]
    assert callbacks.take_launches().tolist() == [[2, 7]]
    assert len(callbacks.take_calls()) == 0
