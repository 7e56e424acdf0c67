"""CUPTI records: layouts against the C header, and the parser."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from deuteron.profiler import CuptiError
from deuteron.profiler.sources import callbacks as callback_text
from deuteron.profiler.sources import cupti, records
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
