"""The files of tile sizes that vLLM and SGLang ship for fused mixtures of experts.

``E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json`` maps numbers of tokens M to
configurations. It has no times, so a configuration is only said to be good. Sizes that such a file does not name (K,
the experts a token) are those of the job.

Some files are not for such a kernel as a job has: SGLang keeps those of the layer's second product apart (``_down``),
vLLM those of a backend that is not Triton (``backend=``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..codec import Scalar, expect_object, parse_json
from ..errors import SchemaError
from ..input_file import read_file
from ..job import JobSpec, shape_key
from ..records import DeviceFingerprint
from .foreign import ForeignFormat, SourceError, adapted, nothing_fits
from .search_log import KnownConfig, SearchLog

_NAME = re.compile(
    r"E=(?P<E>\d{1,9}),N=(?P<N>\d{1,9}),device_name=(?P<device>[^,]*?)"
    r"(?P<selectors>(,\w+=(\[[^\]]*\]|[^,\[]*?))*)(?P<down>_down)?\.json"
)
_SELECTOR = re.compile(r",(?P<name>\w+)=(?P<value>\[[^\]]*\]|[^,\[]*)")
_BLOCK = re.compile(r"\[\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\]")
_PATTERNS = ("E=*.json", "configs/triton_*/E=*.json", "triton_*/E=*.json")
_DTYPES = {"float32": "f32", "fp8_w8a8": "f8e4m3", "float8": "f8e4m3", "int8_w8a8": "i8", "bf16": "bf16"}
_NAMED = ("E", "N", "M")
#: How names of devices begin -> what runs them; CUDA where nothing fits.
_VENDORS = {"AMD": "hip", "Radeon": "hip", "Intel": "xpu"}


@dataclass(frozen=True)
class _Name:
    """What the name of a file says. ``sizes``: E, N, and ``group_n`` and ``group_k`` where it names a block of scales.
    ``dtype``: in their words, None for 16-bit floats."""

    sizes: dict[str, int]
    device: str
    dtype: str | None


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(found for pattern in _PATTERNS for found in path.glob(pattern))
    return [path] if path.match(_PATTERNS[0]) else []


def _read(path: Path, job: JobSpec) -> list[SearchLog]:
    missing = [dim for dim in _NAMED if dim not in job.workload.dims]
    if missing:
        raise SourceError(
            f"{path} is for kernels with the sizes E, N and M; {job.workload.name} has no {', '.join(missing)}",
            hint=f"its dims are {', '.join(job.workload.dims)}",
        )
    name = _parsed(path)
    logs = []
    for tokens, config in _configs(path).items():
        wanted = adapted(config, job)
        if wanted is None:
            continue
        for shape in _completed({**name.sizes, "M": tokens}, job):
            known = (KnownConfig(wanted, None),)
            kernel, dtype = job.workload.kernel.name, _dtype(name.dtype, job)
            logs.append(SearchLog(kernel, "", name.device, shape, dtype, known))
    if not logs:
        raise nothing_fits(path, job)
    return logs


def _parsed(path: Path) -> _Name:
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise SourceError(
            f"{path}: its name says not what it is for", hint="such as E=8,N=7168,device_name=NVIDIA_H200.json"
        )
    if name["down"]:
        raise SourceError(f"{path}: it is for the second product of the layer", hint="the file without _down")
    selectors = {found["name"]: found["value"] for found in _SELECTOR.finditer(name["selectors"])}
    if "backend" in selectors:
        raise SourceError(f"{path}: it is for kernels of {selectors['backend']}, not of Triton")
    sizes = {"E": int(name["E"]), "N": int(name["N"])}
    block = _BLOCK.fullmatch(selectors.get("block_shape", ""))
    if block is not None:
        sizes |= {"group_n": int(block[1]), "group_k": int(block[2])}
    if 0 in sizes.values():
        raise SourceError(f"{path}: its name has a size of 0")
    return _Name(sizes, _device(name["device"]), selectors.get("dtype"))


def _device(name: str) -> str:
    """The key of the device; only its kind where the file does not name it."""
    kind = next((kind for begin, kind in _VENDORS.items() if name.startswith(begin)), "cuda")
    return DeviceFingerprint(kind=kind, name=name).key if name else kind


def _configs(path: Path) -> dict[int, dict[str, Scalar]]:
    try:
        content = expect_object(parse_json(read_file(path), str(path)), str(path))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    except SchemaError as error:
        raise SourceError(error.message) from None
    configs: dict[int, dict[str, Scalar]] = {}
    for tokens, config in content.items():
        if tokens == "triton_version":
            continue
        if not tokens.isdecimal() or len(tokens) > 9 or int(tokens) < 1 or not isinstance(config, dict):
            raise SourceError(f"{path}: {tokens!r} is no number of tokens with a configuration")
        configs[int(tokens)] = {n: v for n, v in config.items() if isinstance(v, int | float | str)}
    return configs


def _completed(named: dict[str, int], job: JobSpec) -> list[dict[str, int]]:
    """The file's sizes with each combination of the others that the job has."""
    made = {}
    for shape in job.shapes:
        whole = {dim: named.get(dim, size) for dim, size in shape.items()}
        made[shape_key(whole)] = whole
    return list(made.values())


def _dtype(name: str | None, job: JobSpec) -> str:
    """A file without a dtype is for 16-bit floats; one for a quantisation that has no name here is for the job's."""
    if name is not None:
        return _DTYPES.get(name, job.dtypes[0])
    return next((dtype for dtype in job.dtypes if dtype in ("bf16", "f16")), "bf16")


MOE_FILES = ForeignFormat("files of vLLM and SGLang", _find, _read)
