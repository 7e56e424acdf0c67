"""``deuteron compile``: every stage, inference of what is missing, and where output goes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deuteron.compiler import Schedule, Target
from deuteron.compiler.targets.nvptx import assemble
from deuteron.compiler.tile.passes import PASSES

ARCHITECTURES = ("80", "86", "87", "89", "90a", "100a", "103a", "110a", "120", "121")
TARGETS = tuple(f"cuda:{name}" for name in ARCHITECTURES)


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


HOPPER = ("--target", "cuda:90a", "--dtype", "f16", "--signature", "stride_ak=i32:1,stride_bn=i32:1,stride_cn=i32:1")


@pytest.mark.parametrize(
    ("step", "word", "not_yet"), [("structure", "block_load", "gpu."), ("rings", "gpu.fetch", "#ll")]
)
def test_any_step_of_the_gpu_stage(run, examples: Path, step: str, word: str, not_yet: str):
    ran = run("compile", f"{examples}/matmul.py:matmul_kernel", *HOPPER, "--emit", "gpu", "--after", step)
    assert ran.code == 0
    assert word in ran.out and not_yet not in ran.out


@pytest.mark.parametrize("target", ["cpu", "cuda:90a"])
def test_any_pass_of_the_tile_stage(run, examples: Path, target: str):
    """Passes that run twice have two names."""

    def after(*step: str) -> str:
        return run("compile", f"{examples}/matmul.py:matmul_kernel", "--target", target, "--emit", "tile", *step).out

    texts = {name: after("--after", name) for name in PASSES}
    lines = [text.count("\n") for text in texts.values()]
    assert lines == sorted(lines, reverse=True) and texts["dce"] == after()
    changes = ("promises", "fold", "cse", "licm", "cse_again", "dce")
    assert len({texts[name] for name in changes}) == len(changes)


def test_steps_are_named_where_one_is_unknown(run, examples: Path):
    for emit, step in (("gpu", "ring"), ("ptx", "rings"), ("tile", "rings"), ("gpu", "cse")):
        ran = run("compile", f"{examples}/matmul.py:matmul_kernel", *HOPPER, "--emit", emit, "--after", step)
        assert ran.code == 2
        assert f"the stage '{emit}' has no step '{step}'" in ran.err
        assert "structure, persistent, streams" in ran.err and "stage tile: promises, fold, unroll" in ran.err


def test_times_of_stages_and_steps(run, examples: Path):
    ran = run("compile", f"{examples}/matmul.py:matmul_kernel", *HOPPER, "--emit", "llvm", "--time", "-q")
    told = dict(re.findall(r"^ *(\w+) +([\d.]+) ms$", ran.err, re.MULTILINE))
    assert list(told)[:4] == ["frontend", "tile", "gpu", "structure"]
    assert list(told)[-3:] == ["turns", "llvm", "total"]
    assert float(told["gpu"]) >= float(told["layouts"]) > 0
    cpu = run("compile", f"{examples}/vector_add.py", "--emit", "object", "-o", os.devnull, "--time", "-q").err
    assert re.findall(r"^\w+", cpu, re.MULTILINE) == ["frontend", "tile", "llvm", "object", "total"]


def test_the_slots_of_rings_are_told(run, examples: Path):
    kernel = f"{examples}/matmul.py:matmul_kernel"
    asked = run("compile", kernel, *HOPPER, "--num-stages", "2").err
    assert "rings of 2 slots\n" in asked
    sizes = "BLOCK_SIZE_M=64,BLOCK_SIZE_N=64,BLOCK_SIZE_K=256"
    fewer = run("compile", kernel, *HOPPER, "--num-stages", "16", "--constexpr", sizes).err
    assert "rings of 3 slots (num_stages = 16: no more fit" in fewer
    assert "slots" not in run("compile", f"{examples}/vector_add.py", "--target", "cuda:90a").err


def test_illegal_schedules_say_what_would_be_legal(run, kernel_file):
    path = kernel_file("@triton.jit\ndef turns(x_ptr):\n    while tl.load(x_ptr, volatile=True) < 1:\n        pass\n")
    ran = run("compile", path, "--target", "cuda:90a", "--persistent")
    assert ran.code == 2
    assert "turns: persistent = True is not possible for a kernel with a loop that ends by what it reads" in ran.err
    assert "use persistent = False" in ran.err
    ran = run("compile", path, "--target", "cuda:90a", "--num-warps", "16", "--maxnreg", "255")
    assert ran.code == 2
    assert "maxnreg = 255 is not possible with num_warps = 16" in ran.err


def test_what_a_gpu_lacks_is_shown_in_the_kernel(run, kernel_file):
    store = "    tl.store(y_ptr + i, tl.load(x_ptr + i).to(tl.float8e4nv))\n"
    path = kernel_file("@triton.jit\ndef narrow(x_ptr, y_ptr):\n    i = tl.arange(0, 64)\n" + store)
    types = ("--signature", "x_ptr=*f32", "--signature", "y_ptr=*f8e4m3")
    ran = run("compile", f"{path}:narrow", "--target", "cuda:80", *types)
    assert ran.code == 2
    assert "7:5: cuda:80 has no conversions of f8e4m3" in " ".join(ran.err.split())
    assert f"\n{store}    ^\n" in ran.err


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
        [sys.executable, "-P", "-m", "deuteron", "compile", f"{examples}/vector_add.py", "-q"]
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


def test_arguments_without_names_of_their_own(run, kernel_file):
    path = kernel_file("@triton.jit\ndef k(x_ptr, *rest):\n    tl.store(x_ptr, tl.load(rest[0]) + rest[1])\n")
    ran = run("compile", f"{path}:k", "--emit", "tile")
    assert ran.code == 2 and 'hint: --signature "rest.0=*f32:16" gives the first' in ran.err
    ran = run("compile", f"{path}:k", "--emit", "tile", "--signature", "rest.0=*f16,rest.1=i32")
    assert ran.code == 0
    assert "%rest.0: *f16, %rest.1: i32" in ran.out
    ran = run("compile", f"{path}:k", "--signature", "rest.1=i32")
    assert ran.code == 2 and "the tuple 'rest' has the elements rest.1" in ran.err


@pytest.mark.parametrize("head", [b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\n# \xe9\n", b"# \xc3\xa9\n"])
def test_files_are_decoded_as_python_does(run, tmp_path: Path, head: bytes):
    path = tmp_path / "k.py"
    path.write_bytes(head + b"import deuteron as triton\n\n\n@triton.jit\ndef k(x_ptr):\n    pass\n")
    for kernel in (f"{path}:k", path):
        ran = run("compile", kernel, "--emit", "tile")
        assert ran.code == 0 and "func @k(" in ran.out, ran.err
