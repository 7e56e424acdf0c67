"""``deuteron compile``: every stage, inference of what is missing, and where output goes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from deuteron.compiler import Schedule, Target
from deuteron.compiler.targets.nvptx import assemble

TARGETS = ("cuda:80", "cuda:86", "cuda:89", "cuda:90a", "cuda:100a", "cuda:120")


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("tile", "func @matmul_kernel("),
        ("gpu", "gpu."),
        ("llvm", 'target triple = "nvptx64'),
        ("ptx", ".target sm_90a"),
    ],
)
def test_stages_of_a_gpu(run, examples: Path, stage: str, expected: str):
    ran = run("compile", f"{examples}/matmul.py:matmul_kernel", "--target", "cuda:90a", "--emit", stage)
    assert ran.code == 0
    assert expected in ran.out
    assert "assumed a_ptr=*f32:16" in ran.err


@pytest.mark.parametrize("target", TARGETS)
def test_the_command_of_the_readme_gives_ptx_that_assembles_without_spills(run, examples: Path, target: str):
    ran = run("compile", f"{examples}/matmul.py:matmul_kernel", "--target", target, "--emit", "ptx")
    assert ran.code == 0
    assert f".target sm_{target.removeprefix('cuda:')}" in ran.out
    cubin = assemble(ran.out, Target.parse(target), Schedule())
    assert cubin.spill_bytes == 0
    assert cubin.registers


def test_stages_of_a_cpu(run, examples: Path):
    kernel = f"{examples}/softmax.py:softmax_kernel"
    assert "define" in run("compile", kernel, "--emit", "llvm").out
    assert "softmax_kernel" in run("compile", kernel).out  # assembly
    ran = run("compile", kernel, "--emit", "ptx")
    assert ran.code == 2
    assert "stages: tile, llvm, object, asm" in ran.err


def test_cubin_goes_to_a_file(run, examples: Path, tmp_path: Path):
    output = tmp_path / "kernel.cubin"
    ran = run(
        *("compile", f"{examples}/vector_add.py", "--target", "cuda:80"),
        *("--emit", "cubin", "-o", output),
    )
    assert (ran.code, ran.out) == (0, "")
    assert output.read_bytes()[:4] == b"\x7fELF"


def test_a_terminal_gets_no_binary(examples: Path):
    primary, secondary = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "deuteron.cli", "compile", f"{examples}/vector_add.py", "-q"]
        + ["--target", "cuda:80", "--emit", "cubin"],
        stdout=secondary,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(secondary)
    os.close(primary)
    assert done.returncode == 2
    assert "the terminal cannot show binary code" in done.stderr
    assert "-o FILE" in done.stderr


def test_what_is_given_wins_over_what_is_inferred(run, examples: Path):
    ran = run(
        *("compile", f"{examples}/vector_add.py:add_kernel", "--emit", "tile"),
        *("--signature", "x_ptr=*bf16:16,n_elements=i64", "--constexpr", "BLOCK_SIZE=256"),
        *("--dtype", "f16"),
    )
    assert ran.code == 0
    assert "%x_ptr: *bf16" in ran.out
    assert "%y_ptr: *f16" in ran.out
    assert "%n_elements: i64" in ran.out
    assert "256x" in ran.out
    assert "x_ptr=" not in ran.err.replace("_ptr=*f16", "")
    assert "y_ptr=*f16:16" in ran.err
    assert "BLOCK_SIZE" not in ran.err


def test_quiet_says_nothing(run, examples: Path):
    assert run("compile", f"{examples}/vector_add.py", "--emit", "tile", "-q").err == ""


def test_the_file_is_not_executed(run, kernel_file, tmp_path: Path):
    touched = tmp_path / "touched"
    path = kernel_file(f"open({str(touched)!r}, 'w')\n\n\n@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, 1.0)\n")
    assert run("compile", path, "--emit", "tile").code == 0
    assert not touched.exists()
