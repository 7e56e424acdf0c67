"""The files of tile sizes that vLLM and SGLang ship for fused mixtures of experts.

``E=8,N=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8.json`` maps numbers of tokens M to configurations. It has no times,
so a configuration is only said to be good. Sizes that such a file does not name (K, the experts a token) are those of
the job.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..codec import Scalar, expect_object, parse_json
from ..errors import SchemaError
from ..job import JobSpec, shape_key
from ..records import DeviceFingerprint
from .foreign import ForeignFormat, SourceError, adapted, nothing_fits
from .search_log import KnownConfig, SearchLog

_NAME = re.compile(
    r"E=(?P<E>\d{1,9}),N=(?P<N>\d{1,9}),device_name=(?P<device>[^,]+)(,dtype=(?P<dtype>\w+))?(,.*)?\.json"
)
_PATTERNS = ("E=*.json", "configs/triton_*/E=*.json", "triton_*/E=*.json")
_DTYPES = {"float32": "f32", "fp8_w8a8": "f8e4m3", "int8_w8a8": "i8"}
_NAMED = ("E", "N", "M")


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(found for pattern in _PATTERNS for found in path.glob(pattern) if _NAME.fullmatch(found.name))
    return [path] if _NAME.fullmatch(path.name) else []


def _read(path: Path, job: JobSpec) -> list[SearchLog]:
    name = _NAME.fullmatch(path.name)
    missing = [dim for dim in _NAMED if dim not in job.workload.dims]
    if name is None or missing:
        raise SourceError(
            f"{path} is for kernels with the sizes E, N and M; {job.workload.name} has no {', '.join(missing)}",
            hint=f"its dims are {', '.join(job.workload.dims)}",
        )
    configs = _configs(path)
    vendor = "hip" if name["device"].startswith("AMD") else "cuda"
    device = DeviceFingerprint(kind=vendor, name=name["device"]).key
    logs = []
    for tokens, config in configs.items():
        wanted = adapted(config, job)
        if wanted is None:
            continue
        named = {"E": int(name["E"]), "N": int(name["N"]), "M": tokens}
        for shape in _completed(named, job):
            known = (KnownConfig(wanted, None),)
            logs.append(SearchLog(job.workload.kernel.name, "", device, shape, _dtype(name["dtype"], job), known))
    if not logs:
        raise nothing_fits(path, job)
    return logs


def _configs(path: Path) -> dict[int, dict[str, Scalar]]:
    try:
        content = expect_object(parse_json(path.read_bytes(), str(path)), str(path))
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
