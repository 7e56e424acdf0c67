"""Triton, Helion and readers of T4: their own functions load what is exported."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType, SimpleNamespace
from typing import Any

from consumer_records import Comparison, export, record
from msgspec.structs import replace

from deuteron.tuner import JobSpec, builtin_workload
from deuteron.tuner.experience.sources import read_logs

DEVICE = "NVIDIA H100 80GB HBM3"
SIZES = ((512, 512, 256), (4096, 4096, 4096), (64, 8192, 2048), (1, 128, 64))
_KERNEL = """
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK_M": m, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8}) for m in (32, 64, 128)],
    key=["M", "N", "K"],
    cache_results=True,
)
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                  GROUP_M: tl.constexpr):
    tl.store(c, tl.load(a) + tl.load(b))
"""


def _config(index: int) -> dict[str, int | bool]:
    blocks = {"BLOCK_M": 16 << index, "BLOCK_N": 64 << (index % 2), "BLOCK_K": 32, "GROUP_M": 1 << index}
    return {**blocks, "num_warps": (4, 8)[index % 2], "num_stages": 2 + index, "persistent": True}


def _records(dtype: str = "bf16") -> list[Any]:
    return [
        record("matmul_kernel", DEVICE, {"M": m, "N": n, "K": k}, dtype, _config(index), best_ns=1000.0 * (1 + index))
        for index, (m, n, k) in enumerate(SIZES)
    ]


def _without(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


# -- Triton


def _module(path: Path, name: str) -> ModuleType:
    loader = SourceFileLoader(name, str(path))  # an export has the name that its reader gave it
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _kernel(name: str) -> Any:
    """The kernel, autotuned by Triton, in a module of its own: nothing is remembered from another one's launches."""
    path = Path(mkdtemp()) / f"{name}.py"
    path.write_text(_KERNEL)
    return _module(path, name).matmul_kernel


def check_triton() -> Comparison:
    """The dispatch module; the module that fills the cache of ``@autotune``, then launches by Triton's own autotuner,
    which may not measure; then the file that Triton wrote, as ``deuteron tune --from`` reads it.

    A driver that only says which GPU it has stands in for one; what is launched is written down instead.
    """
    os.environ["TRITON_CACHE_DIR"] = cache = mkdtemp()
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    def measure(*args: object, **kwargs: object) -> None:
        raise SystemExit("Triton measured, so it found nothing in its cache")

    target = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32), get_benchmarker=lambda: measure)
    driver.set_active(target)
    found, records = Comparison(), _records()
    dispatch = _module(export(records, "dispatch"), "tuned_configs")
    for made in records:
        loaded = dispatch.config_for("matmul_kernel", "bf16", **made.shape).all_kwargs()
        wanted = {**_without(dict(made.config), "persistent"), "num_ctas": 1}  # which Triton adds
        found.same(f"dispatch, {made.shape_key}", loaded, wanted)

    tuned = _module(export(records, "triton-cache"), "tuned_cache")
    array = SimpleNamespace(dtype="torch.bfloat16")
    # Files of a module whose text and place are the same, as in two processes: the key is made of both.
    kernel = _kernel("first")
    for made in records:
        sizes = [made.shape[dim] for dim in ("M", "N", "K")]
        stored = tuned.remember(kernel, "bf16", dict(made.shape), array, array, array, *sizes)
        found.same(f"stored, {made.shape_key}", stored, True)
    kernel.cache.clear()
    for made in records:
        sizes = [made.shape[dim] for dim in ("M", "N", "K")]
        launched: list[dict[str, Any]] = []
        kernel.fn.run = lambda *args, launched=launched, **kwargs: launched.append(kwargs)
        kernel.run(array, array, array, *sizes, grid=(1,), warmup=False)
        (options,) = launched
        wanted = _without(dict(made.config), "persistent")
        found.same(f"launched, {made.shape_key}", {name: options.get(name) for name in wanted}, wanted)
    _read_back(found, Path(cache), records)
    return found


def _read_back(found: Comparison, cache: Path, records: list[Any]) -> None:
    job = JobSpec(builtin_workload("matmul"), tuple(dict(made.shape) for made in records), ("bf16",), "cuda:0")
    logs = {json.dumps(dict(log.shape)): log for log in read_logs(str(cache), "matmul_kernel", job=job)}
    for made in records:
        log = logs[json.dumps(dict(made.shape))]
        read = [({**one.config, "persistent": True}, round(one.time_ns or 0.0, 6)) for one in log.known]
        pairs = [(dict(made.config), made.time_ns.median), (dict(made.default_config), made.default_time_ns.median)]
        found.same(f"read back, {made.shape_key}", read, pairs)
        found.same(f"read back, {made.shape_key}: dtype", log.dtype, "bf16")


# -- Helion


_HELION = """
import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[16, 16, 16]), static_shapes=True)
def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out
"""


def check_helion() -> Comparison:
    """``helion.Config.load``, then Helion's check of it for a kernel, and the code that it makes for it."""
    import helion
    import torch
    from helion.autotuner import config_spec

    path = Path(mkdtemp()) / "helion_matmul.py"
    path.write_text(_HELION)
    sys.modules["helion_matmul"] = module = _module(path, "helion_matmul")
    bound = module.matmul.bind((torch.zeros(2048, 2048), torch.zeros(2048, 2048)))
    found = Comparison()
    # One with a limit of registers, which Helion takes of persistent kernels, on GPUs: as if there was one.
    helion._compat._supports_maxnreg = lambda: True
    config_spec._regs_per_block = lambda: 65536
    limited = replace(_records("f32")[0], config={**_config(0), "maxnreg": 168})
    records = [limited, *_records("f32")[1:]]
    folder = export(records, "helion", "--blocks", "BLOCK_M,BLOCK_N,BLOCK_K")
    for made in records:
        (file,) = [file for file in folder.iterdir() if f",{made.shape_key}," in file.name]
        loaded = helion.Config.load(file)
        config = made.config
        blocks = [config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")]
        wanted = {
            "block_sizes": blocks,
            "l2_groupings": [config["GROUP_M"]],
            "num_warps": config["num_warps"],
            "num_stages": config["num_stages"],
            "pid_type": "persistent_interleaved",
            **({"maxnreg": config["maxnreg"]} if "maxnreg" in config else {}),
        }
        found.same(f"loaded, {made.shape_key}", dict(loaded), wanted)
        checked = helion.Config(**dict(loaded))
        bound.config_spec.normalize(checked)
        found.same(f"checked, {made.shape_key}", {name: checked.config.get(name) for name in wanted}, wanted)
        code = bound.to_triton_code(loaded)
        said = [f"_BLOCK_SIZE_{axis} = tl.constexpr({size})" in code for axis, size in enumerate(blocks)]
        said += [f"num_warps={config['num_warps']}" in code, f"num_stages={config['num_stages']}" in code]
        found.same(f"in the code, {made.shape_key}", said, [True] * 5)
    return found


# -- T4


def check_t4() -> Comparison:
    """Kernel Tuner's schema, which is all that it has for reading T4, and the reader of the paper's other package."""
    import jsonschema
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics
    from kernel_tuner.file_utils import get_t4_results, output_file_schema

    found, records = Comparison(), _records("f32")
    folder = export(records, "t4")
    _, schema = output_file_schema("results")
    theirs = get_t4_results([], {})
    for made in records:
        (file,) = [file for file in folder.iterdir() if f",{made.shape_key}," in file.name]
        content = json.loads(file.read_text())
        jsonschema.validate(content, schema)
        found.same(f"keys, {made.shape_key}", content.keys(), theirs.keys())
        found.same(f"unit, {made.shape_key}", content["metadata"], theirs["metadata"])
        space = SearchspaceStatistics("matmul", DEVICE, True, ["runtimes"], ["time"], file)
        seconds = [made.default_time_ns.median / 1e9, made.time_ns.median / 1e9]
        found.same(f"runtimes, {made.shape_key}", _close(space.objective_times["runtimes"], seconds), True)
        # Measurements are not converted: they stay in the unit of the file.
        found.same(f"time, {made.shape_key}", _close(space.objective_performances["time"] / 1e3, seconds), True)
        configs = [result["configuration"] for result in space.results]
        found.same(f"configurations, {made.shape_key}", configs, [dict(made.default_config), dict(made.config)])
    return found


def _close(loaded: Any, stored: list[float]) -> bool:
    return len(loaded) == len(stored) and all(
        math.isclose(one, other, rel_tol=1e-9) for one, other in zip(loaded, stored, strict=True)
    )
