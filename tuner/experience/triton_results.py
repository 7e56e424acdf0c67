"""Results that Triton's ``@autotune`` keeps (TRITON_CACHE_AUTOTUNING=1): ``<key>/<kernel>.autotune.json``.

A file has one tuning key and the time of every configuration that was tried for it: median, 20th and 80th percentile in
ms, infinity for what failed. The key is a list of the values of the arguments that the author named, then of the dtypes
of all arguments. It has no names, so its whole numbers are the workload's dims in their order, and it has no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype

from ..codec import Document, Scalar, convert, parse_json
from ..errors import SchemaError
from ..input_file import read_file
from .foreign import ForeignFormat, SourceError, adapted, nothing_fits
from .search_log import MOST_CONFIGS, KnownConfig, SearchLog

if TYPE_CHECKING:
    from ..job import JobSpec

_SUFFIX = ".autotune.json"
# Triton cuts the name of the kernel there.
_NAME_LENGTH = 150
NS_PER_MS = 1e6
# What 64 bits hold.
_SIZE_DIGITS = 18
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class _Config(Document, frozen=True):
    kwargs: dict[str, Scalar | None]
    num_warps: int | None = None
    num_stages: int | None = None
    num_ctas: int | None = None
    maxnreg: int | None = None


class _Results(Document, frozen=True):
    key: tuple[Scalar | None, ...]
    configs_timings: tuple[tuple[_Config, tuple[float, ...] | float], ...]


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted([*path.glob(f"*{_SUFFIX}"), *path.glob(f"*/*{_SUFFIX}")])
    return [path] if path.name.endswith(_SUFFIX) else []


def _read(path: Path, job: JobSpec) -> list[SearchLog]:
    kernel = job.workload.kernel.name
    if path.name != f"{kernel[:_NAME_LENGTH]}{_SUFFIX}":
        return []
    try:
        # Triton writes what failed as Infinity, which Python's parser takes and JSON does not have.
        results = convert(parse_json(read_file(path), str(path)), _Results, str(path))
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None
    except SchemaError as error:
        raise SourceError(f"not a result of @autotune: {error.message}", hint="a file that Triton wrote") from None
    shape = _shape(results.key, job, path)
    known = [KnownConfig(config, ms * NS_PER_MS) for config, ms in _timed(results, job)]
    if not known:
        raise nothing_fits(path, job)
    fastest = tuple(sorted(known, key=lambda one: one.time_ns or math.inf)[:MOST_CONFIGS])
    return [SearchLog(kernel, "", "cuda", shape, _dtype(results.key, job), fastest)]


def _timed(results: _Results, job: JobSpec) -> list[tuple[dict[str, Scalar], float]]:
    found = []
    for config, timing in results.configs_timings:
        ms = timing[0] if isinstance(timing, tuple) and timing else timing
        options = {name: getattr(config, name) for name in _OPTIONS}
        given = {name: value for name, value in {**options, **config.kwargs}.items() if value is not None}
        wanted = adapted(given, job)
        if wanted is not None and isinstance(ms, float | int) and 0 < ms * NS_PER_MS < math.inf:
            found.append((wanted, float(ms)))
    return found


def _shape(key: Sequence[Scalar | None], job: JobSpec, path: Path) -> dict[str, int]:
    """Later versions write every part of the key as text."""
    numbers = [str(part) for part in key if str(part).isdecimal()]
    dims = job.workload.dims
    if len(numbers) != len(dims):
        raise SourceError(
            f"{path}: its tuning key has {len(numbers)} sizes, {job.workload.name} has the dims {', '.join(dims)}",
            hint="a kernel whose key=[...] names the arguments that are these dims, in this order",
        )
    long = next((number for number in numbers if len(number) > _SIZE_DIGITS), None)
    if long is not None:
        raise SourceError(f"{path}: {long[:40]!r} in its tuning key is no size")
    return {dim: max(1, int(number)) for dim, number in zip(dims, numbers, strict=True)}


def _dtype(key: Sequence[Scalar | None], job: JobSpec) -> str:
    """Of the first argument that has one; the job's where the key has none that kernels know."""
    for part in key:
        if isinstance(part, str) and not part.isdecimal():
            try:
                return canonical_dtype(part)
            except LaunchError:
                continue
    return job.dtypes[0]


TRITON_RESULTS = ForeignFormat("results of Triton's @autotune", _find, _read)
