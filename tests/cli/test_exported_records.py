"""Exports of every format: which records they have, and that no name in one becomes code or leads elsewhere."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from deuteron.cli.exports import FORMATS
from deuteron.tuner import ConfigRecord, read_bundle, write_bundle

TILES = {"BLOCK_SIZE_M": 64, "BLOCK_N": 128, "BLOCK_SIZE_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
ALL_FORMATS = [name for name in FORMATS if name not in ("json", "csv")]
EXPERTS = {"E": 8, "N": 64, "M": 16}
OPTIONS = {"sglang": ("--triton", "3.6.0"), "helion": ("--blocks", "BLOCK_SIZE_M,BLOCK_N,BLOCK_SIZE_K")}


def texts_of(output: Path) -> str:
    return output.read_text() if output.is_file() else "".join(p.read_text() for p in output.rglob("*") if p.is_file())


@pytest.mark.parametrize("form", ALL_FORMATS)
@pytest.mark.parametrize("which", ["toolchain", "text", "day"])
def test_the_record_of_a_lookup_is_exported(run, bundle: Path, record_of, tmp_path: Path, form: str, which: str):
    """Services keep a record of every toolchain, and names are of more than one text."""
    (base,) = read_bundle(bundle).records()
    place = {"default_config": TILES, "created_at": "2026-02-01T00:00:00Z", "toolchain": base.toolchain}
    current = record_of(EXPERTS, TILES, **place)
    if which == "toolchain":  # a newer one of another toolchain is not this machine's
        current = replace(current, device=base.device)
    changes: dict[str, Any] = {
        "toolchain": {"toolchain": {"compiler": "0"}, "created_at": "2026-03-01T00:00:00Z"},
        "text": {"kernel_hash": "0" * 64, "created_at": "2026-01-01T00:00:00Z"},
        "day": {"toolchain": {"compiler": "0"}, "created_at": "2026-01-01T00:00:00Z"},
    }[which]
    stale = replace(current, config={**TILES, "BLOCK_SIZE_K": 16}, default_config={**TILES, "BLOCK_SIZE_K": 16})
    write_bundle(tmp_path / "two.bundle", [replace(stale, **changes), current])
    write_bundle(tmp_path / "one.bundle", [current])
    made = []
    for name in ("one", "two"):
        source, output = tmp_path / f"{name}.bundle", tmp_path / f"{name}-out"
        ran = run("cache", "export", source, "--format", form, "-o", output, *OPTIONS.get(form, ()))
        assert ran.code == 0, ran.err
        made.append(texts_of(output))
    if form == "dispatch" and which != "text":  # the other one is second, for shapes where the first may not be used
        assert made[1].index("'BLOCK_SIZE_K': 64") < made[1].index("'BLOCK_SIZE_K': 16")
        return
    assert made[0] == made[1]
    if which == "text":
        assert "1 record of 1 older text left out" in ran.err and "--kernel 000000000000" in ran.err
    else:
        assert "1 record left out, of shapes of which there is" in ran.err


def test_an_export_is_of_a_kernel_a_dtype_and_a_device(run, record_of, tmp_path: Path) -> None:
    """One file of vLLM and SGLang is for several dtypes, and devices of one name."""
    base = record_of(EXPERTS, TILES)
    other = {**TILES, "BLOCK_SIZE_M": 16}
    larger = replace(base.device, sm_count=132)
    for option, value, second in (
        ("--dtype", "bf16", replace(base, dtype="f16", config=other)),
        ("--device", base.device.key, replace(base, device=larger, config=other)),
        ("--kernel", base.kernel_name, replace(base, kernel_name="other", kernel_hash="f" * 64, config=other)),
    ):
        write_bundle(tmp_path / "b", sorted([base, second], key=lambda record: record.key))
        vllm = ("cache", "export", tmp_path / "b", "--format", "vllm", "-o", tmp_path / option)
        ran = run(*vllm)
        assert ran.code == 2 and "has two configurations for M=16" in ran.err
        hinted = re.search(rf"{option} (\S+)", ran.err)
        assert hinted is not None
        ran = run(*vllm, option, hinted[1])
        assert ran.code == 0, ran.err
        (file,) = (tmp_path / option).iterdir()
        assert json.loads(file.read_text())["16"]["BLOCK_SIZE_M"] == (64 if hinted[1] == value else 16)
    ran = run(*vllm, "--dtype", "f64")
    assert ran.code == 2 and "no record is of that kernel, dtype and device" in ran.err
    write_bundle(tmp_path / "b", [base, record_of({**EXPERTS, "K": 7}, other)])
    ran = run(*vllm)
    assert ran.code == 2 and "such files know no K" in ran.err


def test_unknown_formats_and_sources(run, bundle: Path, tmp_path: Path) -> None:
    ran = run("cache", "export", bundle, "--format", "vlm")
    assert ran.code == 2 and "one of json, csv" in ran.err
    (tmp_path / "empty").mkdir()
    assert "has no journal.jsonl" in run("cache", "export", tmp_path / "empty").err
    ran = run("cache", "export", tmp_path / "nothing")
    assert ran.code == 2 and "No such file" in ran.err


def test_a_search_that_went_on_has_each_record_once(run, bundle: Path, tmp_path: Path) -> None:
    lines = (bundle.parent / "journal.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_text("".join(lines + [line for line in lines if '"shape_finished"' in line]))
    assert len(json.loads(run("cache", "export", tmp_path).out)) == 1


@pytest.mark.parametrize("form", ["helion", "sglang", "t4"])
def test_names_of_records_lead_nowhere_else(run, record_of, tmp_path: Path, form: str) -> None:
    """A bundle is text that somebody else wrote."""
    record = record_of({"E": 8, "N": 8, "M": 8}, TILES, "a/../../../b", kernel_name="../../kernel")
    write_bundle(tmp_path / "b", [record])
    options = {"sglang": ("--triton", "3.6.0"), "helion": ("--blocks", "BLOCK_SIZE_M,BLOCK_N,BLOCK_SIZE_K")}
    ran = run("cache", "export", tmp_path / "b", "--format", form, "-o", tmp_path / "x", *options.get(form, ()))
    assert ran.code == 2 and "would lie outside" in ran.err
    assert not (tmp_path / "x").exists()


def test_a_name_that_no_file_can_have(run, record_of, tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", [record_of(EXPERTS, TILES, kernel_name="ker\0nel")])
    ran = run("cache", "export", tmp_path / "b", "--format", "t4", "-o", tmp_path / "x")
    assert ran.code == 2 and "no file can be called" in ran.err and r"ker\x00nel" in ran.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("dim", ["kernel", "dtype", "device", "cdiv"])
def test_sizes_that_a_module_means_something_else_by(run, record_of, tmp_path: Path, dim: str) -> None:
    """A launch could not give them: ``config_for`` took a size called ``device`` for the device."""
    write_bundle(tmp_path / "b", [record_of({dim: 8}, TILES)])
    ran = run("cache", "export", tmp_path / "b", "--format", "dispatch")
    assert ran.code == 2 and f"the size '{dim}' is a name of the module itself" in ran.err


def test_help_names_every_format(run) -> None:
    shown = " ".join(run("cache", "export", "--help").out.replace("│", " ").split())
    assert all(f"{name}: " in shown for name in FORMATS)


@pytest.mark.parametrize("form", ["python", "dispatch", "triton-cache"])
@pytest.mark.parametrize("name", ["K=0\n{code}\nK", '"""\n{code}\n"""', "K']\n{code}\n['K", "{bold}", "class"])
def test_no_name_becomes_code(name: str, form: str, record_of: Callable[..., ConfigRecord], run, tmp_path: Path):
    """Bundles may come from anywhere: names of kernels, sizes, parameters, devices and texts among the values."""
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')"
    # Upper case leaves these letters and digits alone, and Python reads the letters as those of exec.
    octal = "".join(f"\\{ord(letter):03o}" for letter in code)
    bold = "K=0\n" + "".join(chr(0x1D41A + ord(letter) - 97) for letter in "exec") + f'("{octal}")\nK'
    hostile = name.format(code=code, bold=bold)
    records = [
        record_of({hostile: 8, "M": 8}, {hostile: hostile, "num_warps": 4}, f"NVIDIA {hostile}", kernel_name=hostile)
    ]
    write_bundle(tmp_path / "hostile.bundle", records)
    made = tmp_path / "made.py"
    done = run("cache", "export", tmp_path / "hostile.bundle", "--format", form, "-o", made)
    assert done.code in (0, 2) and "Traceback" not in done.err
    if made.exists():
        with contextlib.suppress(Exception):  # it may need Triton; what matters is what ran
            exec(compile(made.read_text(), "made.py", "exec"), {"__name__": "made"})
    assert not ran.exists()


@pytest.mark.parametrize("k", [1, 2])
def test_no_size_becomes_code_in_a_dispatch_rule(k: int, record_of: Callable[..., ConfigRecord], run, tmp_path: Path):
    dim = f"M=open({str(tmp_path / 'ran')!r},'w')"
    made = [record_of({dim: size}, {"BLOCK": block}) for size, block in ((64, 16), (1024, 32), (4096, 64))]
    write_bundle(tmp_path / "hostile.bundle", sorted(made, key=lambda record: record.key))
    name = made[0].kernel_name
    done = run(
        "cover", name, "--from", tmp_path / "hostile.bundle", "--k", k, "--format", "python", "-o", tmp_path / "m.py"
    )
    assert done.code == 2 and "no name that Python code can have" in done.err
    assert not (tmp_path / "m.py").exists()
