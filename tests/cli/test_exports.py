"""Exports, read as their consumers read them: the rules of each loader, written again from its source.

The consumers are no dependencies here; ``test_consumers.py`` calls their own loaders where they are installed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.tuner import ConfigRecord, read_bundle, write_bundle
from deuteron.tuner.measure.statistics import Interval

TILES = {"BLOCK_SIZE_M": 64, "BLOCK_N": 128, "BLOCK_SIZE_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def export(run, tmp_path: Path) -> Callable[..., Path]:
    """Writes records through the command, to a file or folder; its path."""

    def write(records: list[ConfigRecord], form: str, *options: str) -> Path:
        bundle, output = tmp_path / "made.bundle", tmp_path / f"made-{form}"
        write_bundle(bundle, sorted(records, key=lambda record: record.key))
        ran = run("cache", "export", bundle, "--format", form, "-o", output, *options)
        assert ran.code == 0, ran.err
        return output

    return write


# -- vLLM and SGLang


def nearest(file: Path, tokens: int) -> dict[str, object] | None:
    """What both take of a file for a number of tokens."""
    if not file.is_file():
        return None
    configs = {int(m): config for m, config in json.loads(file.read_text()).items()}
    return dict(configs[min(configs, key=lambda m: abs(m - tokens))])


def vllm_config(folder: Path, device: str, rest: str, tokens: int) -> dict[str, object] | None:
    name = re.sub(r"[\s/]+", "_", device)
    name = "NVIDIA_H200" if "H200" in name.split("_") else name
    return nearest(folder / f"E=8,N=7168,device_name={name}{rest}.json", tokens)


def sglang_config(root: Path, triton: str, device: str, rest: str, tokens: int) -> dict[str, object] | None:
    """Its own version of Triton first, then the others, newest first."""
    file = f"E=8,N=7168,device_name={device.replace(' ', '_')}{rest}.json"
    own = f"triton_{triton.replace('.', '_')}"
    others = sorted(
        (path.name for path in (root / "configs").iterdir()),
        key=lambda name: [int(part) for part in name.removeprefix("triton_").split("_")],
        reverse=True,
    )
    found = [nearest(root / "configs" / folder / file, tokens) for folder in (own, *others)]
    return next((config for config in found if config is not None), None)


@pytest.mark.parametrize("device", ["NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3"])
@pytest.mark.parametrize(
    ("dtype", "scales", "vllm", "sglang"),
    [
        ("bf16", {}, "", ""),
        (
            "f8e4m3",
            {"group_k": 128, "group_n": 64},
            ",dtype=fp8_w8a8,block_shape=[64,128]",
            ",dtype=fp8_w8a8,block_shape=[64, 128]",
        ),
        ("i8", {}, "", ",dtype=int8_w8a8"),
        ("f8e4m3", {"group_k": 0, "group_n": 0}, ",dtype=fp8_w8a8", ",dtype=fp8_w8a8"),
    ],
)
def test_mixtures_of_experts_are_found(record_of, export, device, dtype, scales, vllm, sglang) -> None:
    records = [
        record_of({"E": 8, "N": 7168, "M": m, **scales}, {**TILES, "BLOCK_SIZE_M": block}, device, dtype=dtype)
        for m, block in ((1, 16), (64, 32), (4096, 128))
    ]
    folder, root = export(records, "vllm"), export(records, "sglang", "--triton", "3.6.0")
    for tokens, block in ((1, 16), (40, 32), (3000, 128)):
        wanted = {
            "BLOCK_SIZE_M": block,
            "BLOCK_SIZE_N": 128,
            "BLOCK_SIZE_K": 64,
            "GROUP_SIZE_M": 8,
            "num_warps": 4,
            "num_stages": 3,
        }
        assert vllm_config(folder, device, vllm, tokens) == wanted
        for triton in ("3.6.0", "3.4.0"):
            assert sglang_config(root, triton, device, sglang, tokens) == wanted


@pytest.mark.parametrize("version", [[], ["--triton", "../../3"]])
def test_sglang_needs_a_version(run, bundle: Path, tmp_path: Path, version: list[str]) -> None:
    ran = run("cache", "export", bundle, "--format", "sglang", "-o", tmp_path / "x", *version)
    assert ran.code == 2 and "--triton 3.6.0" in ran.err


# -- Helion


def helion_config(text: str, tunables: tuple[str, ...] = ()) -> dict[str, Any]:
    """A configuration as Helion's constructor takes it and its kernels accept it."""
    known = {"block_sizes", "l2_groupings", "num_warps", "num_stages", "maxnreg", "pid_type", "indexing"}
    config = json.loads(text)
    if config.keys() - known - set(tunables):
        raise ValueError(f"invalid keys {config.keys() - known}")
    powers = [*config["block_sizes"], *config.get("l2_groupings", []), config.get("num_warps", 4)]
    assert all(value > 0 and value.bit_count() == 1 for value in powers)
    assert "maxnreg" not in config or config["pid_type"].startswith("persistent")
    return dict(config)


ORDER = ("--blocks", "BLOCK_M,BLOCK_N,BLOCK_K")


def test_helion(record_of, export) -> None:
    blocks = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}
    config = {**blocks, "GROUP_M": 8, "num_warps": 8, "num_stages": 3, "persistent": True}
    folder = export([record_of({"M": 64, "N": 32}, config)], "helion", *ORDER)
    text = (folder / "vector_add_kernel,bf16,M=64,N=32,cuda-h200-cc90.json").read_text()
    wanted = {"block_sizes": [64, 128, 32], "l2_groupings": [8], "num_warps": 8, "num_stages": 3}
    assert helion_config(text) == {**wanted, "pid_type": "persistent_interleaved"}
    folder = export([record_of({"M": 64, "N": 32}, {**config, "SPLIT": 2, "persistent": False})], "helion", *ORDER)
    text = next(folder.iterdir()).read_text()
    with pytest.raises(ValueError, match="SPLIT"):
        helion_config(text)
    assert helion_config(text, ("SPLIT",)) == {**wanted, "SPLIT": 2}
    # One block has no order to say.
    folder = export([record_of({"M": 1}, {"BLOCK": 64, "maxnreg": 168, "persistent": True})], "helion")
    assert helion_config((folder / "vector_add_kernel,bf16,M=1,cuda-h200-cc90.json").read_text())["maxnreg"] == 168


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"BLOCK": 48}, "BLOCK = 48"),
        ({"GROUP_M": 3}, "GROUP_M = 3"),
        ({"maxnreg": 168}, "of persistent kernels only"),
        ({"maxnreg": 257, "persistent": True}, "it takes 1 to 256"),
        ({"num_stages": 9}, "it takes 1 to 8"),
        ({"BLOCK_K": 32}, "--blocks BLOCK,BLOCK_K, in the order of its tiles"),
        (None, "has no block sizes, which Helion needs"),
    ],
)
def test_what_helion_does_not_take(run, record_of, tmp_path: Path, wrong, says: str) -> None:
    config = {"ROWS": 2} if wrong is None else {"BLOCK": 64, **wrong}
    write_bundle(tmp_path / "b", [record_of({"M": 64}, config)])
    ran = run("cache", "export", tmp_path / "b", "--format", "helion", "-o", tmp_path / "x")
    assert ran.code == 2 and says in ran.err and not (tmp_path / "x").exists()


@pytest.mark.parametrize("names", ["BLOCK_M", "BLOCK_M,BLOCK_N,BLOCK_O"])
def test_blocks_that_the_configuration_does_not_have(run, record_of, tmp_path: Path, names: str) -> None:
    write_bundle(tmp_path / "b", [record_of({"M": 64}, {"BLOCK_M": 64, "BLOCK_N": 32})])
    ran = run("cache", "export", tmp_path / "b", "--format", "helion", "-o", tmp_path / "x", "--blocks", names)
    assert ran.code == 2 and "for M=64 has BLOCK_M, BLOCK_N" in ran.err


# -- Kernel Tuner


def t4_results(file: Path) -> list[dict[str, Any]]:
    """The results of a file that keeps to the schema."""
    content = json.loads(file.read_text())
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", content["schema_version"])
    assert content["metadata"]["timeunit"] == "milliseconds"  # readers take seconds where nothing is said
    for result in content["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= result.keys()
        assert isinstance(result["timestamp"], str) and isinstance(result["configuration"], dict)
        assert result["invalidity"] in ("timeout", "compile", "runtime", "correctness", "constraints", "correct")
        assert isinstance(result["correctness"], int | float) and isinstance(result["objectives"], list)
        assert isinstance(result["times"].pop("runtimes"), list)
        assert all(isinstance(time, float) for time in result["times"].values())
        for measured in result["measurements"]:
            assert isinstance(measured["name"], str) and isinstance(measured["unit"], str)
            assert isinstance(measured["value"], int | float | str | list)
    return list(content["results"])


def measured(result: Mapping[str, Any], name: str) -> list[float]:
    return [one["value"] for one in result["measurements"] if one["name"] == name]


def test_t4_of_a_bundle(bundle: Path, export) -> None:
    (record,) = read_bundle(bundle).records()
    best = replace(record, config={"BLOCK_SIZE": 3})
    (file,) = export([best], "t4").iterdir()
    default, found = t4_results(file)
    assert (default["configuration"], found["configuration"]) == (dict(record.default_config), {"BLOCK_SIZE": 3})
    assert measured(found, "time") == [record.time_ns.median / 1e6]
    assert measured(default, "time_high") == [record.default_time_ns.high / 1e6]


def test_t4_of_a_journal_has_every_trial(run, bundle: Path, tmp_path: Path) -> None:
    ran = run("cache", "export", bundle.parent, "--format", "t4", "-o", tmp_path)
    assert ran.code == 0, ran.err
    results = t4_results(tmp_path / "vector_add_kernel,f32,n=65536.json")
    lines = [json.loads(line) for line in (bundle.parent / "journal.jsonl").read_text().splitlines()]
    trials = [line["trial"] for line in lines if line.get("kind") == "trial_finished"]
    assert [result["configuration"] for result in results] == [trial["config"] for trial in trials]
    times = [[trial["time_ns"]["median"] / 1e6] if trial.get("time_ns") else [] for trial in trials]
    assert [measured(result, "time") for result in results] == times
    assert {"screen", "final"} <= {measured(result, "phase")[0] for result in results}
    assert results[0]["times"]["compilation"] > 0


def test_every_status_of_a_trial_has_a_name_in_t4() -> None:
    from typing import get_args

    from deuteron.cli.exports.kernel_tuner import _INVALIDITY
    from deuteron.tuner.trial import Status

    assert _INVALIDITY.keys() == set(get_args(Status))


# -- Triton's cache


class Config(SimpleNamespace):
    """Triton's, as far as a cache knows it."""

    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None, pre_hook=None, ir_override=None):
        super().__init__(kwargs=kwargs, num_warps=num_warps, num_ctas=num_ctas, num_stages=num_stages)
        self.maxnreg, self.pre_hook, self.ir_override = maxnreg, pre_hook, ir_override

    def __hash__(self) -> int:
        return hash(str(self))


class Autotuner:
    """A kernel whose results are kept by Triton's rules: a digest of key and configurations names the file."""

    def __init__(self, folder: Path, configs: list[Config]) -> None:
        self.folder, self.configs, self.keys, self.arg_names = folder, configs, ["n"], ["x", "y", "n"]
        self.base_fn = SimpleNamespace(__name__="vector_add_kernel")
        self.cache: dict[tuple[object, ...], Config] = {}
        self.configs_timings: dict[Config, list[float]] = {}
        self.nargs: dict[str, object] = {}

    def prune_configs(self, kwargs: object) -> list[Config]:
        return [config for config in self.configs if config.kwargs["BLOCK_SIZE"] > 64]

    def check_disk_cache(self, key: tuple[object, ...], configs: list[Config], bench: Callable[[], None]) -> bool:
        digest = hashlib.sha256("-".join([str(key), *map(str, configs)]).encode()).hexdigest()
        file = self.folder / digest / "vector_add_kernel.autotune.json"
        if file.exists():
            timings = {Config(**c): times for c, times in json.loads(file.read_text())["configs_timings"]}
            self.cache[key] = min(timings, key=lambda config: timings[config])
            return True
        bench()
        file.parent.mkdir(parents=True)
        kept = [(config.__dict__, times) for config, times in self.configs_timings.items()]
        file.write_text(json.dumps({"key": key, "configs_timings": kept}))
        return False


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    module = ModuleType("triton")
    module.Config = Config  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", module)
    return module


def test_tritons_cache(record_of, export, tmp_path: Path, triton: ModuleType) -> None:
    records = [record_of({"n": n}, {"BLOCK_SIZE": n // 8, "num_warps": 8, "persistent": True}) for n in (1024, 4096)]
    slower = Interval(9e9, 8e9, 1e10, 9)
    records = [replace(record, default_config={"BLOCK_SIZE": 128}, default_time_ns=slower) for record in records]
    names: dict[str, Any] = {}
    exec(compile(export(records, "triton-cache").read_text(), "module", "exec"), names)
    array = SimpleNamespace(dtype="torch.bfloat16")
    configs = [Config({"BLOCK_SIZE": size}) for size in (64, 128, 256)]
    filled = Autotuner(tmp_path / "cache", configs)
    assert names["remember"](filled, "bf16", {"n": 4096}, array, array, 4096)
    assert not names["remember"](filled, "bf16", {"n": 4096}, array, array, 4096)  # what is there stays

    fresh, key = Autotuner(tmp_path / "cache", configs), (4096, "torch.bfloat16", "torch.bfloat16")
    assert fresh.check_disk_cache(key, configs[1:], lambda: pytest.fail("it measured"))
    assert fresh.cache[key].kwargs == {"BLOCK_SIZE": 512} and fresh.cache[key].num_warps == 8
    (file,) = (tmp_path / "cache").glob("*/*.json")
    stored = {str(config["kwargs"]): times for config, times in json.loads(file.read_text())["configs_timings"]}
    times = records[0].time_ns
    assert stored["{'BLOCK_SIZE': 512}"] == [ns / 1e6 for ns in (times.median, times.low, times.high)]

    with pytest.raises(KeyError, match="not {'n': 5}"):
        names["remember"](filled, "bf16", {"n": 5}, array, array, 5)
    with pytest.raises(ValueError, match="two configurations"):
        names["remember"](Autotuner(tmp_path, configs[:2]), "bf16", {"n": 1024}, array, array, 1024)
