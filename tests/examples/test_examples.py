"""Every example runs, compiled and under the interpreter, and its kernels assemble for every GPU without spills."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deuteron.compiler import KernelSource, compile

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem != "harness")
ARCHITECTURES = ("80", "86", "87", "89", "90a", "100a", "103a", "110a", "120", "121")
TARGETS = tuple(f"cuda:{name}" for name in ARCHITECTURES)


@dataclass(frozen=True)
class Kernel:
    """One kernel of an example with a signature as its launch would have it."""

    file: str
    name: str
    signature: dict[str, str]
    constexprs: dict[str, object]
    num_warps: int = 4
    tags: set[str] = field(default_factory=set)


F32, F16, BF16, F8, INT = "*fp32:16", "*fp16:16", "*bf16:16", "*fp8e4nv:16", "i32:16"
STRIDES = {f"stride_{n}": INT for n in ("am", "bk", "cm")} | {f"stride_{n}": "i32:1" for n in ("ak", "bn", "cn")}
KERNELS = [
    Kernel(
        "vector_add",
        "add_kernel",
        {"x_ptr": F32, "y_ptr": F32, "output_ptr": F32, "n_elements": INT},
        {"BLOCK_SIZE": 1024},
    ),
    Kernel(
        "softmax",
        "softmax_kernel",
        {"output_ptr": F32, "input_ptr": F32, "input_row_stride": INT}
        | {"output_row_stride": INT, "n_rows": "i32", "n_cols": "i32"},
        {"BLOCK_SIZE": 4096, "num_stages": 2},
        num_warps=8,
    ),
    Kernel(
        "softmax",
        "online_softmax_kernel",
        dict.fromkeys(("output_ptr", "input_ptr"), F32) | {"n_cols": INT},
        {"BLOCK_SIZE": 4096},
        num_warps=16,
    ),
    Kernel(
        "softmax",
        "softmax_backward_kernel",
        dict.fromkeys(("dx_ptr", "dy_ptr", "y_ptr"), F32) | {"n_cols": INT},
        {"BLOCK_SIZE": 4096},
        num_warps=16,
    ),
    Kernel(
        "layer_norm",
        "layer_norm_fwd",
        dict.fromkeys(("X", "Y", "W", "B", "Mean", "Rstd"), F32) | {"stride": INT, "N": "i32", "eps": "fp32"},
        {"BLOCK_SIZE": 1024},
    ),
    Kernel(
        "layer_norm",
        "layer_norm_dx",
        dict.fromkeys(("DX", "DY", "X", "W", "Mean", "Rstd"), F32) | {"N": INT},
        {"BLOCK_SIZE": 1024},
    ),
    Kernel(
        "layer_norm",
        "layer_norm_partials",
        dict.fromkeys(("DW", "DB", "DY", "X", "Mean", "Rstd"), F32) | {"M": "i32", "N": INT, "rows_each": "i32"},
        {"BLOCK_M": 16, "BLOCK_N": 64},
    ),
    Kernel(
        "rms_norm",
        "rms_norm_fwd",
        dict.fromkeys(("X", "Y", "W", "Rstd"), BF16) | {"Rstd": F32, "N": INT, "eps": "fp32"},
        {"BLOCK_SIZE": 1024},
    ),
    Kernel(
        "rms_norm",
        "rms_norm_dx",
        dict.fromkeys(("DX", "DY", "X", "W"), BF16) | {"Rstd": F32, "N": INT},
        {"BLOCK_SIZE": 1024},
    ),
    Kernel(
        "rms_norm",
        "rms_norm_partials",
        {"DW": F32, "DY": BF16, "X": BF16, "Rstd": F32, "M": "i32", "N": INT, "rows_each": "i32"},
        {"BLOCK_M": 16, "BLOCK_N": 64},
    ),
    Kernel(
        "rms_norm",
        "sum_groups",
        {"Out": F32, "Partials": F32, "groups": "i32", "N": INT},
        {"BLOCK_M": 32, "BLOCK_N": 64},
    ),
    Kernel(
        "split_k",
        "partial_products",
        {"a_ptr": BF16, "b_ptr": BF16, "parts_ptr": F32, "M": "i32", "N": INT, "K": INT},
        {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "SPLIT_K": 8},
    ),
    Kernel(
        "split_k",
        "sum_parts",
        {"parts_ptr": F32, "c_ptr": BF16, "size": "i32"},
        {"SPLIT_K": 8, "BLOCK": 1024},
    ),
    Kernel(
        "experts",
        "experts_kernel",
        dict.fromkeys(("x_ptr", "w_ptr", "out_ptr"), BF16)
        | dict.fromkeys(("slots_ptr", "experts_ptr"), "*i32:16")
        | {"used": "i32", "tiles": "i32", "N": INT, "K": INT},
        {"TOP_K": 8, "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8},
    ),
    Kernel(
        "attention",
        "row_products",
        {"Out": F16, "DOut": F16, "Delta": F32, "N": "i32"},
        {"HEAD": 128, "BLOCK_M": 64},
    ),
    Kernel(
        "matmul",
        "matmul_kernel",
        {"a_ptr": F16, "b_ptr": F16, "c_ptr": F16, "M": "i32", "N": "i32", "K": "i32"} | STRIDES,
        {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
        | {"ACTIVATION": "leaky_relu"},
    ),
    Kernel(
        "dropout",
        "seeded_dropout_kernel",
        {"x_ptr": F32, "output_ptr": F32, "n_elements": "i32", "p": "fp32", "seed": "i32"},
        {"BLOCK_SIZE": 1024},
    ),
    Kernel(
        "heuristics",
        "scale_kernel",
        {"x_ptr": F32, "output_ptr": F32, "n_elements": "i32", "factor": "fp32"},
        {"BLOCK_SIZE": 256},
    ),
    Kernel(
        "heuristics",
        "matmul_kernel",
        {"a_ptr": F32, "b_ptr": F32, "c_ptr": F32, "M": "i32", "N": INT, "K": INT},
        {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "EVEN_K": True},
    ),
    Kernel(
        "debugging",
        "add_kernel",
        {"x_ptr": F32, "y_ptr": F32, "output_ptr": F32, "n_elements": "i32"},
        {"BLOCK_SIZE": 128},
    ),
]


@dataclass(frozen=True)
class Pass:
    """One of the attention kernels: its pointers beside Q, K and V, and its scalars."""

    name: str
    pointers: dict[str, str]
    scalars: tuple[str, ...]
    blocks: dict[str, int]


ROW = {"Lse": F32, "Delta": F32}
PASSES = [
    Pass("attention_forward", {"Out": "*", "Lse": F32}, ("scale",), {"BLOCK_M": 64, "BLOCK_N": 64}),
    Pass(
        "attention_dkdv",
        {"DOut": "*", **ROW, "DK": "*", "DV": "*"},
        ("scale", "sm_scale"),
        {"BLOCK_M": 32, "BLOCK_N": 64},
    ),
    Pass("attention_dq", {"DOut": "*", **ROW, "DQ": "*"}, ("scale", "sm_scale"), {"BLOCK_M": 64, "BLOCK_N": 32}),
]


def compile_attention(kernel: Pass, target: str, data: str, head: int, causal: bool):
    result = BF16 if data == F8 else data
    pointers = {"Q": data, "K": data, "V": data} | {n: result if t == "*" else t for n, t in kernel.pointers.items()}
    return compile(
        KernelSource.from_file(EXAMPLES / "attention.py", kernel.name),
        signature=pointers | {"N": INT} | dict.fromkeys(kernel.scalars, "fp32"),
        constexprs=kernel.blocks | {"HEAD": head, "CAUSAL": causal},
        target=target,
    )


def run(script: str, *options: str, stdin: str = "", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, f"{script}.py", *options],
        cwd=EXAMPLES,
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_runs_on_the_cpu(script: str):
    assert run(script)


@pytest.mark.gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_example_runs_on_the_gpu(script: str):
    assert run(script, "--device", "cuda:0")


@pytest.mark.parametrize("script", ["vector_add", "heuristics", "split_k", "experts"])
def test_example_runs_under_the_interpreter(script: str):
    assert run(script, TRITON_INTERPRET="1")


def test_pdb_stops_inside_a_kernel_and_shows_its_values():
    out = run("debugging", stdin="p x\nc\n", TRITON_INTERPRET="1")
    assert "stepping_kernel()" in out
    assert "15." in out.split("(Pdb)")[1]


def test_prints_at_compile_time_and_from_the_kernel(tmp_path: Path):
    lines = run("debugging", DEUTERON_CACHE_DIR=str(tmp_path)).splitlines()  # a cached variant is silent
    assert "BLOCK_SIZE:8" in lines
    assert any("pid (1, 0, 0)" in line and line.endswith("pid: 1") for line in lines)


@pytest.mark.parametrize(
    ("kernel", "target"),
    # The others differ from these three in what they hold, not in their instructions.
    [(k, t) for k in KERNELS for t in TARGETS if t in ("cuda:80", "cuda:90a", "cuda:120") or k is KERNELS[0]],
    ids=lambda v: v if isinstance(v, str) else f"{v.file}-{v.name}",
)
def test_kernel_assembles_without_spills(kernel: Kernel, target: str):
    source = KernelSource.from_file(EXAMPLES / f"{kernel.file}.py", kernel.name)
    compiled = compile(
        source,
        signature=kernel.signature,
        constexprs=kernel.constexprs,
        target=target,
        num_warps=kernel.num_warps,
    )
    assert f".target sm_{target.removeprefix('cuda:')}" in compiled.asm["ptx"]
    assert len(compiled.asm["cubin"]) > 0
    assert compiled.metadata.spills == 0
    assert compiled.metadata.registers


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("target", "data"), [("cuda:80", F16), ("cuda:90a", BF16)])
@pytest.mark.parametrize("kernel", PASSES, ids=lambda k: k.name)
def test_attention_assembles_without_spills(kernel: Pass, data: str, causal: bool, target: str):
    compiled = compile_attention(kernel, target, data, 64, causal)
    assert len(compiled.asm["cubin"]) > 0
    assert compiled.metadata.spills == 0


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize("kernel", PASSES, ids=lambda k: k.name)
def test_attention_of_wide_heads_assembles(kernel: Pass, target: str):
    assert len(compile_attention(kernel, target, BF16, 128, True).asm["cubin"]) > 0


def test_fp8_attention_assembles():
    assert len(compile_attention(PASSES[0], "cuda:90a", F8, 128, True).asm["cubin"]) > 0
