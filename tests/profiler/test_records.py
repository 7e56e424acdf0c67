"""CUPTI records: layouts against the C header, and the bulk parser against a plain walk."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deuteron.profiler import CuptiError
from deuteron.profiler.sources import records
from deuteron.profiler.sources.buffers import NativeBuffers, native_buffers
from deuteron.profiler.sources.records import kernel_record_size, parse, record_sizes, record_starts

VERSIONS = {9: 208, 10: 216, 11: 224, 12: 232, 13: 248}


def include_folder() -> Path:
    """CUPTI's headers, from the wheel or a toolkit; skips the test without them or gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    from importlib.metadata import PackageNotFoundError, files

    for package in ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12"):
        try:
            found = [f for f in files(package) or [] if f.name == "cupti_activity_deprecated.h"]
        except PackageNotFoundError:
            continue
        for file in found:
            folder = Path(str(file.locate())).parent
            if (folder / "cuda.h").exists():
                return folder
    for folder in (Path("/usr/local/cuda/extras/CUPTI/include"), Path("/usr/local/cuda/include")):
        if (folder / "cupti_activity_deprecated.h").exists():
            return folder
    pytest.skip("the header cupti_activity_deprecated.h (with cuda.h) is not installed")


def test_layouts_are_those_of_the_c_header(tmp_path: Path) -> None:
    include = include_folder()
    lines = []
    text = (include / "cupti_activity.h").read_text() + (
        include / "cupti_activity_deprecated.h"
    ).read_text()
    kernels = [v for v in VERSIONS if f"}} CUpti_ActivityKernel{v};" in text]
    assert kernels, "the header has no kernel record of CUDA 12 or 13"
    for version in kernels:
        struct = f"CUpti_ActivityKernel{version}"
        lines.append(f'printf("{struct} size %zu\\n", sizeof({struct}));')
        lines += [
            f'printf("{struct} {name} %zu %zu\\n", offsetof({struct}, {name}), sizeof((({struct}*)0)->{name}));'
            for name, _, _ in records.KERNEL_FIELDS
        ]
    struct = "CUpti_ActivityExternalCorrelation"
    lines.append(f'printf("{struct} size %zu\\n", sizeof({struct}));')
    lines += [
        f'printf("{struct} {name} %zu %zu\\n", offsetof({struct}, {name}), sizeof((({struct}*)0)->{name}));'
        for name, _, _ in records.CORRELATION_FIELDS
    ]
    lines.append('printf("CUpti_ActivityAPI size %zu\\n", sizeof(CUpti_ActivityAPI));')
    for name in ("KERNEL", "DRIVER", "RUNTIME", "CONCURRENT_KERNEL", "EXTERNAL_CORRELATION"):
        lines.append(f'printf("kind {name} %d\\n", CUPTI_ACTIVITY_KIND_{name});')
    lines.append('printf("kind CUSTOM0 %d\\n", CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);')
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <cuda.h>\n#include <cupti.h>\n"
        "#include <cupti_activity_deprecated.h>\nint main(void) {"
        + "\n".join(lines)
        + "return 0; }\n"
    )
    program = tmp_path / "offsets"
    subprocess.run(["gcc", f"-I{include}", str(source), "-o", str(program)], check=True, timeout=60)
    printed = subprocess.run(
        [str(program)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    expected = []
    for version in kernels:
        struct = f"CUpti_ActivityKernel{version}"
        expected.append(f"{struct} size {VERSIONS[version]}")
        expected += [
            f"{struct} {name} {offset} {np.dtype(form).itemsize}"
            for name, form, offset in records.KERNEL_FIELDS
        ]
    struct = "CUpti_ActivityExternalCorrelation"
    expected.append(f"{struct} size {records.CORRELATION_SIZE}")
    expected += [
        f"{struct} {name} {offset} {np.dtype(form).itemsize}"
        for name, form, offset in records.CORRELATION_FIELDS
    ]
    expected += [
        f"CUpti_ActivityAPI size {records.API_SIZE}",
        f"kind KERNEL {records.KIND_KERNEL}",
        f"kind DRIVER {records.KIND_DRIVER}",
        f"kind RUNTIME {records.KIND_RUNTIME}",
        f"kind CONCURRENT_KERNEL {records.KIND_CONCURRENT_KERNEL}",
        f"kind EXTERNAL_CORRELATION {records.KIND_EXTERNAL_CORRELATION}",
        f"kind CUSTOM0 {records.EXTERNAL_KIND_CUSTOM0}",
    ]
    assert printed == expected


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
        }
        for i in range(3)
    ]
    buffer = synthetic.buffer(
        synthetic.correlation(100, 1),
        synthetic.kernel(size, **kernels[0]),
        synthetic.kernel(size, **kernels[1]),
        synthetic.correlation(101, 2, kind=5),
        synthetic.kernel(size, **kernels[2]),
    )
    found = parse(buffer, record_sizes(size))
    for position, kernel in enumerate(kernels):
        assert {name: int(found.kernels[name][position]) for name in kernel} == kernel
    assert found.correlations["correlationId"].tolist() == [100, 101]
    assert found.correlations["externalId"].tolist() == [1, 2]
    assert found.correlations["externalKind"].tolist() == [3, 5]


def walk(buffer: np.ndarray, sizes: dict[int, int]) -> list[tuple[int, int]]:
    """The naive definition of where records start."""
    found, at = [], 0
    while at < len(buffer):
        kind = int(buffer[at : at + 4].view("<u4")[0])
        found.append((at, kind))
        at += sizes[kind]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_starts_are_those_of_a_walk_even_when_fields_look_like_kinds(
    seed: int, synthetic: SimpleNamespace
) -> None:
    draw = random.Random(seed)
    size = draw.choice(list(VERSIONS.values()))
    misleading = [3, 4, 5, 10, 39]
    parts = []
    for _ in range(draw.randrange(1, 200)):
        if draw.random() < 0.5:
            fields = {
                name: draw.choice(misleading)
                for name in ("streamId", "deviceId", "start", "end", "name")
            }
            parts.append(synthetic.kernel(size, **fields))
        elif draw.random() < 0.5:
            parts.append(synthetic.correlation(draw.choice(misleading), draw.choice(misleading)))
        else:
            api = np.array([draw.choice([4, 5]), *draw.choices(misleading, k=9)], "<u4")
            parts.append(api.tobytes())
    buffer = synthetic.buffer(*parts)
    sizes = record_sizes(size)
    starts, kinds = record_starts(buffer, sizes)
    assert list(zip(starts.tolist(), kinds.tolist(), strict=True)) == walk(buffer, sizes)


def test_empty_buffer() -> None:
    found = parse(np.empty(0, np.uint8), record_sizes(208))
    assert len(found.kernels) == len(found.correlations) == 0


def test_an_unknown_record_is_named(synthetic: SimpleNamespace) -> None:
    buffer = synthetic.buffer(synthetic.correlation(1, 1), bytes([77, 0, 0, 0] + [0] * 20))
    with pytest.raises(CuptiError, match="byte 24 of 48, kind 77"):
        parse(buffer, record_sizes(208))
    with pytest.raises(CuptiError, match="cannot read"):  # records of another size than assumed
        parse(synthetic.buffer(*[synthetic.kernel(224)] * 3), record_sizes(208))
    with pytest.raises(CuptiError, match="8-byte words"):
        parse(np.zeros(12, np.uint8), record_sizes(208))


def test_two_hundred_thousand_records_take_under_a_second(synthetic: SimpleNamespace) -> None:
    pair = synthetic.correlation(1, 1) + synthetic.kernel(216, correlationId=1, start=1, end=3)
    buffer = np.frombuffer(pair * 100_000, np.uint8)
    import time

    begin = time.process_time()
    found = parse(buffer, record_sizes(216))
    assert time.process_time() - begin < 1.0
    assert len(found.kernels) == len(found.correlations) == 100_000


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


REQUESTED = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
COMPLETED = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


def fill(buffers: NativeBuffers, data: bytes) -> None:
    """What CUPTI does: ask for a buffer, fill it, hand it back."""
    address, size, limit = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(99)
    REQUESTED(buffers.requested)(ctypes.byref(address), ctypes.byref(size), ctypes.byref(limit))
    assert size.value == buffers.size
    assert limit.value == 0
    assert address.value is not None and address.value % 8 == 0
    ctypes.memmove(address.value, data, len(data))
    COMPLETED(buffers.completed)(None, 0, address.value, size.value, len(data))


def test_native_buffers_come_back_in_order() -> None:
    buffers = native_buffers(1 << 16)
    for number in range(5):
        fill(buffers, bytes([number]) * 8)
    fill(buffers, b"")
    with buffers.take() as views:
        assert [bytes(view) for view in views] == [bytes([number]) * 8 for number in range(5)]
    with buffers.take() as views:
        assert views == []


def test_native_buffers_from_many_threads_lose_nothing() -> None:
    buffers = native_buffers(1 << 16)
    seen: list[int] = []
    done = threading.Event()

    def produce(number: int) -> None:
        for i in range(300):
            fill(buffers, (number * 1000 + i).to_bytes(8, "little"))

    def consume() -> None:
        while True:
            last = done.is_set()
            with buffers.take() as views:
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
