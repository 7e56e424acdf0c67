"""CUPTI records: layouts against the C header, the parser, and the native callbacks driven as CUPTI drives them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deuteron.profiler import CuptiError
from deuteron.profiler.sources import callbacks as callback_text
from deuteron.profiler.sources import cupti, records
from deuteron.profiler.sources.native import NativeCallbacks, native_callbacks, thread_cell
from deuteron.profiler.sources.records import kernel_record_size, parse_kernels, parse_records

VERSIONS = {9: 208, 10: 216, 11: 224, 12: 232, 13: 248}
# The records of copies and memsets that the headers of CUDA 12 and 13 have.
COPIES = [*(f"CUpti_ActivityMemcpy{version}" for version in (5, 6, 7))]
MEMSETS = [*(f"CUpti_ActivityMemset{version}" for version in (4, 5))]


@pytest.fixture
def c_compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        pytest.skip("needs a C compiler on PATH: cc, gcc or clang (Debian: apt-get install gcc)")
    return found


@pytest.fixture
def include() -> Path:
    """The folder of CUPTI's headers, from the wheels or a toolkit."""
    header = "cupti_activity_deprecated.h"
    folders = [Path("/usr/local/cuda/extras/CUPTI/include"), Path("/usr/local/cuda/include")]
    for package in ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12"):
        try:
            found = [file for file in files(package) or [] if file.name == header]
        except PackageNotFoundError:
            continue
        folders[:0] = [Path(str(file.locate())).parent for file in found]
    for folder in folders:
        if all((folder / name).exists() for name in (header, "cuda.h", "crt/host_defines.h")):
            return folder
    pytest.skip("needs CUPTI's headers, which the extra dev brings: pip install nvidia-cuda-cupti nvidia-cuda-nvcc")


def test_layouts_and_numbers_are_those_of_the_c_headers(c_compiler: str, include: Path, tmp_path: Path) -> None:
    text = "".join((include / f"cupti_activity{part}.h").read_text() for part in ("", "_deprecated"))
    kernels = [v for v in VERSIONS if f"}} CUpti_ActivityKernel{v};" in text]
    assert kernels, "the headers have no kernel record of CUDA 12 or 13"
    expected: list[tuple[str, int]] = []
    for version in kernels:
        struct = f"CUpti_ActivityKernel{version}"
        expected.append((f"sizeof({struct})", VERSIONS[version]))
        for name, form, offset in records.KERNEL_FIELDS:
            expected.append((f"offsetof({struct}, {name})", offset))
            expected.append((f"sizeof((({struct}*)0)->{name})", np.dtype(form).itemsize))
    copies = [struct for struct in (*COPIES, *MEMSETS) if f"}} {struct};" in text]
    assert {struct[:-1] for struct in copies} == {"CUpti_ActivityMemcpy", "CUpti_ActivityMemset"}
    for struct in copies:
        for name, form, offset in records.COPY_FIELDS:
            if (struct, name) not in [(memset, "copyKind") for memset in MEMSETS]:
                expected.append((f"offsetof({struct}, {name})", offset))
                expected.append((f"sizeof((({struct}*)0)->{name})", np.dtype(form).itemsize))
    directions = {"HtoD": "HTOD", "DtoH": "DTOH", "DtoD": "DTOD", "HtoH": "HTOH", "AtoD": "ATOD", "PtoP": "PTOP"}
    expected += [
        (f"CUPTI_ACTIVITY_MEMCPY_KIND_{name}", records.COPY_KINDS.index(shown)) for shown, name in directions.items()
    ]
    expected += [
        ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", records.KIND_CONCURRENT_KERNEL),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", records.KIND_MEMCPY),
        ("CUPTI_ACTIVITY_KIND_MEMSET", records.KIND_MEMSET),
        ("CUPTI_ERROR_MAX_LIMIT_REACHED", cupti._END_OF_RECORDS[0]),
        ("CUPTI_ERROR_INVALID_KIND", cupti._END_OF_RECORDS[1]),
        ("offsetof(CUpti_CallbackData, correlationData)", callback_text.CORRELATION_DATA_OFFSET),
        ("offsetof(CUpti_CallbackData, callbackSite)", callback_text.CALLBACK_SITE_OFFSET),
        ("offsetof(CUpti_CallbackData, correlationId)", callback_text.CORRELATION_ID_OFFSET),
        ("sizeof(((CUpti_CallbackData*)0)->correlationId)", 4),
        ("CUPTI_API_ENTER", callback_text.API_ENTER),
        ("CUPTI_CB_DOMAIN_DRIVER_API", cupti._DOMAIN_DRIVER_API),
        ("CUPTI_CB_DOMAIN_RESOURCE", callback_text.DOMAIN_RESOURCE),
        ("CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED", callback_text.NODE_CREATED),
        ("CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED", callback_text.NODE_CLONED),
        ("offsetof(CUpti_ResourceData, resourceDescriptor)", callback_text.RESOURCE_OFFSET),
        ("offsetof(CUpti_GraphData, node)", callback_text.NODE_OFFSET),
        ("offsetof(CUpti_GraphData, originalNode)", callback_text.ORIGINAL_NODE_OFFSET),
        ("CUPTI_ACTIVITY_FLAG_FLUSH_FORCED", cupti._FLUSH_FORCED),
        ("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", cupti._MULTIPLE_SUBSCRIBERS),
    ]
    expected += [(f"CUPTI_DRIVER_TRACE_CBID_{name}", number) for number, name in cupti.LAUNCH_CALLS.items()]
    prints = "\n".join(f'printf("%ld\\n", (long)({expression}));' for expression, _ in expected)
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <cupti.h>\n"
        f"#include <cupti_activity_deprecated.h>\nint main(void) {{ {prints} return 0; }}\n"
    )
    program = tmp_path / "layout"
    subprocess.run([c_compiler, f"-I{include}", str(source), "-o", str(program)], check=True, timeout=60)
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip([e for e, _ in expected], map(int, printed), strict=True)) == dict(expected)


@pytest.mark.parametrize("size", VERSIONS.values())
def test_fields_come_back(size: int, synthetic: SimpleNamespace) -> None:
    kernels = [
        {
            "start": 10**18 + i,
            "end": 10**18 + i + 5,
            "deviceId": i,
            "streamId": 7 + i,
            "correlationId": 100 + i,
            "name": 4096 * i,
            "registersPerThread": 255 - i,
        }
        for i in range(3)
    ]
    found = parse_kernels(synthetic.buffer(*[synthetic.kernel(size, **k) for k in kernels]), size)
    for position, kernel in enumerate(kernels):
        assert {name: int(found[name][position]) for name in kernel} == kernel


def test_an_empty_buffer_has_no_kernels() -> None:
    assert len(parse_kernels(np.empty(0, np.uint8), 208)) == 0


def test_what_is_not_a_kernel_record_is_named(synthetic: SimpleNamespace) -> None:
    other = synthetic.kernel(208, kind=39)
    with pytest.raises(CuptiError, match="byte 208 of 416"):
        parse_kernels(synthetic.buffer(synthetic.kernel(208), other), 208)
    with pytest.raises(CuptiError, match="cannot read"):  # records of another size than assumed
        parse_kernels(synthetic.buffer(*[synthetic.kernel(224)] * 3), 208)
    with pytest.raises(CuptiError, match="byte 208 of 300"):
        parse_kernels(synthetic.buffer(synthetic.kernel(208), b"\n" + bytes(91)), 208)


@pytest.mark.parametrize(
    ("version", "size"),
    [
        (19, 208),
        (28, 208),
        (130000, 216),
        (130001, 216),
        (130100, 224),
        (130201, 224),
        (130300, 232),
        (130500, 248),
    ],
)
def test_kernel_record_size_by_version(version: int, size: int) -> None:
    assert kernel_record_size(version) == size


def test_versions_before_cuda_12_are_refused() -> None:
    with pytest.raises(CuptiError, match="older than CUDA 12.0"):
        kernel_record_size(18)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_length_of_a_record_is_measured(count: int, synthetic: SimpleNamespace) -> None:
    size = 264  # of a CUPTI to come
    buffer = synthetic.buffer(*[synthetic.kernel(size)] * count)
    base = buffer.ctypes.data

    def next_record(start: int, valid: int, record: object) -> int:
        """cuptiActivityGetNextRecord."""
        slot = ctypes.c_void_p.from_address(ctypes.addressof(record._obj))  # type: ignore[attr-defined]
        following = base if not slot.value else slot.value + size
        if following >= start + valid:
            return 12  # CUPTI_ERROR_MAX_LIMIT_REACHED
        slot.value = following
        return 0

    source = cupti.CuptiSource.__new__(cupti.CuptiSource)
    source._cupti = SimpleNamespace(cuptiActivityGetNextRecord=next_record)
    source._kernel_size, source._measured = 248, False
    source._measure(buffer)
    assert (source._kernel_size, source._measured) == (size, True)


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


def test_copies_and_kernels_of_one_buffer(synthetic: SimpleNamespace) -> None:
    kernels = [synthetic.kernel(216, start=number, correlationId=number) for number in (1, 4)]
    copy = synthetic.copy(96, kind=records.KIND_MEMCPY, copyKind=2, bytes=1 << 40, start=2, correlationId=2)
    memset = synthetic.copy(88, kind=records.KIND_MEMSET, bytes=5, start=3, correlationId=3)
    buffer = synthetic.buffer(kernels[0], copy, memset, kernels[1])
    found, copies = parse_records(buffer, 216, lambda _: (0, 216, 312, 400))
    assert found["correlationId"].tolist() == [1, 4] and found["start"].tolist() == [1, 4]
    fields = ["kind", "bytes", "start", "correlationId"]
    assert copies[fields].tolist() == [(records.KIND_MEMCPY, 1 << 40, 2, 2), (records.KIND_MEMSET, 5, 3, 3)]
    assert copies["copyKind"][0] == 2
    alone, none = parse_records(synthetic.buffer(*kernels), 216, lambda _: ())
    assert len(alone) == 2 and len(none) == 0
    with pytest.raises(CuptiError, match="byte 216 of 616, neither"):
        parse_records(synthetic.buffer(kernels[0], b"\x30" + bytes(183), kernels[1]), 216, lambda _: (0, 216, 400))
    with pytest.raises(CuptiError, match="byte 312 of 352, cut off"):
        parse_records(buffer[:352], 216, lambda _: (0, 216, 312))


def test_the_library_finds_records_of_several_kinds(synthetic: SimpleNamespace) -> None:
    """libcupti itself walks over a made-up buffer, where it is installed in a version that does so without a driver."""
    library = load_cupti_or_skip()
    source = cupti.CuptiSource.__new__(cupti.CuptiSource)
    source._cupti = library
    sizes = {records.KIND_MEMCPY: 96, records.KIND_MEMSET: 88}
    parts = [synthetic.kernel(216)]
    parts += [synthetic.copy(sizes[kind], kind=kind) for kind in (1, 2, 1)] + [synthetic.kernel(216)]
    buffer = synthetic.buffer(*parts)
    expected = [0, *np.cumsum([len(part) for part in parts])[:-1].tolist()]
    assert list(source._places(buffer)) == expected
    assert dict(source._copying_calls())[277] == "cuMemcpyHtoDAsync_v2"


def load_cupti_or_skip() -> ctypes.CDLL:
    """A libcupti of CUDA 13.0, whose sizes the test above has."""
    for path in ("libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13", "/usr/local/cuda-13.0/lib/libcupti.so.13"):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        version = ctypes.c_uint32()
        if library.cuptiGetVersion(ctypes.byref(version)) == 0 and 130000 <= version.value < 130100:
            return library
    pytest.skip("needs libcupti of CUDA 13.0 where the loader finds it, or in /usr/local/cuda")
