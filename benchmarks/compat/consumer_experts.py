"""vLLM and SGLang: their own functions find, read and choose from files of fused mixtures of experts.

What stands in for a GPU is the name that torch would give it; everything else is theirs: which name a file has, which
folder is searched, which dtype selector a quantisation has, which number of tokens is taken. In the other direction
every file that they ship is read as ``deuteron tune --from`` reads it and compared with what they load.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from consumer_records import Comparison, export, record

from deuteron.tuner import JobSpec
from deuteron.tuner.experience.foreign import SourceError
from deuteron.tuner.experience.sources import read_logs
from deuteron.tuner.workloads import workload_from_json

DEVICES = (
    "NVIDIA H200",
    "NVIDIA H200 NVL",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "AMD Instinct MI300X",
    "Intel(R) Arc(TM) Pro B70 Graphics",
    "Board A/B",
)
LAYERS = ((8, 7168), (64, 1536), (160, 192))
TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
#: Batch sizes to look up: all of them, some between, in the middle of two (the smaller one is taken), and beyond.
BATCHES = (*TOKENS, 3, 6, 20, 40, 41, 200, 700, 1280, 5000, 131072)
HIDDEN = 4096
_JOB = {
    "kernel": {
        "name": "experts",
        "source": "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        "def experts(x, y, n, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,\n"
        "            GROUP_SIZE_M: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)\n"
        "    tl.store(y + i, tl.load(x + i, i < n), i < n)\n",
    },
    "dims": ["E", "M", "N", "K", "group_n", "group_k"],
    "tensors": [{"name": "x", "shape": ["M"]}, {"name": "y", "shape": ["M"], "role": "output"}],
    "scalars": {"n": "M"},
    "dtypes": ["bf16", "f8e4m3", "i8", "f32"],
    "grid": ["cdiv(M, BLOCK_SIZE_M)"],
    "space": {
        "parameters": {
            "BLOCK_SIZE_M": [16, 32, 64, 128, 256],
            "BLOCK_SIZE_N": [16, 32, 64, 128, 256],
            "BLOCK_SIZE_K": [32, 64, 128, 256],
            "GROUP_SIZE_M": [1, 16, 32, 64],
            "num_warps": [4, 8],
            "num_stages": [2, 3, 4, 5],
        }
    },
}


@dataclass(frozen=True)
class Quantisation:
    """``dtype`` of the records with the sizes ``scales``; ``selector``: what the consumer calls it; ``block``: of its
    scales, where it has one."""

    dtype: str
    scales: Mapping[str, int]
    selector: str | None
    block: tuple[int, int] | None = None


#: Answers with the configuration for a layer, its quantisation and a batch.
Lookup = Callable[[int, int, Quantisation, int], Mapping[str, object]]


def check_vllm() -> Comparison:
    """``try_get_optimal_moe_config`` on exported files, ``get_moe_configs`` on its own."""
    import torch
    import vllm.model_executor.layers.fused_moe.fused_moe as experts
    from vllm.model_executor.layers.fused_moe.config import fp8_w8a8_moe_quant_config, int8_w8a8_moe_quant_config
    from vllm.platforms import current_platform

    one = torch.ones(1)
    fp8 = fp8_w8a8_moe_quant_config(one, one).config_name(torch.bfloat16)
    int8 = int8_w8a8_moe_quant_config(one, one, None, None).config_name(torch.bfloat16)
    plain = [experts._get_config_dtype_str(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)]
    cases = _cases(*plain, fp8, int8)

    def choose(device: str) -> None:
        type(current_platform).get_device_name = classmethod(lambda cls, device_id=0: device)
        experts.get_device_name_as_file_name.cache_clear()
        experts.get_moe_configs.cache_clear()

    def lookup(e: int, n: int, case: Quantisation, tokens: int) -> Mapping[str, object]:
        block = list(case.block) if case.block else None
        shapes = (e, 2 * n, HIDDEN), (e, HIDDEN, n)
        return dict(experts.try_get_optimal_moe_config(*shapes, 2, case.selector, tokens, block))

    found = Comparison()
    for device, case in product(DEVICES, cases):
        os.environ["VLLM_TUNED_CONFIG_FOLDER"] = str(_exported(device, case, "vllm"))
        choose(device)
        _compare_lookups(found, device, case, lookup)
    del os.environ["VLLM_TUNED_CONFIG_FOLDER"]

    def load(e: int, n: int, device: str, selector: str | None, block: Sequence[int]) -> dict[int, Any] | None:
        choose(device)
        return experts.get_moe_configs(e, n, selector, *block)

    folder = Path(experts.__file__).parent / "configs"
    _compare_shipped(found, sorted(folder.glob("E=*.json")), load)
    _read_folder(found, folder)
    return found


def check_sglang() -> Comparison:
    """As :func:`check_vllm`, with SGLang's functions; its files are compared as JSON, for it looks for one version of
    Triton at a time."""
    import torch
    import triton
    from sglang.srt.layers.moe.moe_runner.triton_utils import fused_moe_triton_config as experts

    experts.get_exec = lambda: SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))
    named = experts.get_config_dtype_str
    plain = [named(dtype) for dtype in (torch.bfloat16, torch.float16, torch.float32)]
    cases = _cases(*plain, named(torch.bfloat16, use_fp8_w8a8=True), named(torch.bfloat16, use_int8_w8a8=True))

    def lookup(e: int, n: int, case: Quantisation, tokens: int) -> Mapping[str, object]:
        block = list(case.block) if case.block else None
        return dict(
            experts.try_get_optimal_moe_config(
                (e, 2 * n, HIDDEN), (e, HIDDEN, n), 2, case.selector, tokens, block_shape=block
            )
        )

    found = Comparison()
    # For its own Triton, and for another one, which it takes with a warning.
    for device, case, wanted in product(DEVICES, cases, (triton.__version__, "3.4.0")):
        os.environ["SGLANG_MOE_CONFIG_DIR"] = str(_exported(device, case, "sglang", "--triton", wanted))
        experts.get_device_name = lambda device=device: device
        experts.get_moe_configs.cache_clear()
        _compare_lookups(found, device, case, lookup)
    folder = Path(experts.__file__).parent / "configs"
    _compare_shipped(found, sorted(folder.glob("triton_*/E=*.json")), None)
    _read_folder(found, folder)
    return found


def _cases(bf16: str | None, f16: str | None, f32: str | None, fp8: str | None, int8: str | None) -> list[Quantisation]:
    return [
        Quantisation("bf16", {}, bf16),
        Quantisation("f16", {}, f16),
        Quantisation("f32", {}, f32),
        Quantisation("f8e4m3", {}, fp8),
        Quantisation("f8e4m3", {"group_n": 128, "group_k": 64}, fp8, (128, 64)),
        Quantisation("i8", {}, int8),
    ]


def _stored(layer: int, index: int) -> dict[str, int]:
    """The configuration of a layer for the index-th number of tokens: each its own."""
    turn = layer + index
    return {
        "BLOCK_SIZE_M": (16, 32, 64, 128)[turn % 4],
        "BLOCK_SIZE_N": (32, 64, 128)[turn % 3],
        "BLOCK_SIZE_K": (64, 128)[turn % 2],
        "GROUP_SIZE_M": 1 + turn,
        "num_warps": (4, 8)[index % 2],
        "num_stages": 2 + layer,
    }


def _exported(device: str, case: Quantisation, form: str, *options: str) -> Path:
    records = [
        record(
            "experts", device, {"E": e, "N": n, "M": m, **case.scales}, case.dtype, {**_stored(layer, i), "extra": 7}
        )
        for layer, (e, n) in enumerate(LAYERS)
        for i, m in enumerate(TOKENS)
    ]
    return export(records, form, *options)


def _compare_lookups(found: Comparison, device: str, case: Quantisation, lookup: Lookup) -> None:
    for (layer, (e, n)), tokens in product(enumerate(LAYERS), BATCHES):
        nearest = min(range(len(TOKENS)), key=lambda i: abs(TOKENS[i] - tokens))
        where = f"{device}, {case.dtype}{case.block or ''}, E={e}, N={n}, {tokens} tokens"
        found.same(where, lookup(e, n, case, tokens), _stored(layer, nearest))


def _job() -> JobSpec:
    shape = {"E": 8, "M": 64, "N": 7168, "K": HIDDEN, "group_n": 7, "group_k": 7}
    return JobSpec(workload_from_json(_JOB, "workload"), (shape,), tuple(_JOB["dtypes"]), "cuda:0")


def _compare_shipped(
    found: Comparison, files: Sequence[Path], load: Callable[..., dict[int, Any] | None] | None
) -> None:
    job = _job()
    for file in files:
        found.count("shipped")
        try:
            logs = read_logs(str(file), "experts", job=job)
        except SourceError as error:
            found.count("refused: " + error.message.replace(str(file), "").lstrip(": "))
            continue
        found.count("read")
        content = json.loads(file.read_text())
        content.pop("triton_version", None)
        wanted = {int(tokens): config for tokens, config in content.items()}
        e, n, device, selectors = _parts(file.name)
        block = json.loads(selectors.get("block_shape", "[7, 7]"))
        if load is not None:
            given = block if "block_shape" in selectors else [0, 0]
            loaded = load(e, n, device.replace("_", " "), selectors.get("dtype"), given)
            found.count("read, by the consumer too" if loaded == wanted else "read, but not by the consumer")
        for log in logs:
            place = [log.shape[dim] for dim in ("E", "N", "group_n", "group_k")]
            found.same(f"{file.name}: sizes", place, [e, n, *block])
        read = {log.shape["M"]: dict(log.known[0].config) for log in logs}
        found.same(f"{file.name}: numbers of tokens", read.keys(), wanted.keys())
        for tokens, config in wanted.items():
            shared = {name: value for name, value in config.items() if name in _JOB["space"]["parameters"]}
            kept = {name: value for name, value in read.get(tokens, {}).items() if name in shared}
            found.same(f"{file.name}: {tokens} tokens", kept, shared)


def _parts(name: str) -> tuple[int, int, str, dict[str, str]]:
    """E, N, the device and the selectors of a file that was read; cut at commas outside brackets."""
    pairs = [part.partition("=") for part in re.split(r",(?![^\[]*\])", name.removesuffix(".json"))]
    named = {key: value for key, _, value in pairs}
    return int(named.pop("E")), int(named.pop("N")), named.pop("device_name"), named


def _read_folder(found: Comparison, folder: Path) -> None:
    """The whole folder in one go, as the documents show it; lines about what was passed over are counted."""
    lines: list[str] = []
    read_logs(str(folder), "experts", job=_job(), tell=lines.append)
    passed = sum(int(line.split()[0]) for line in lines)
    refused = sum(number for what, number in found.counts.items() if what.startswith("refused"))
    found.same("files of the folder that were passed over", passed, refused)
