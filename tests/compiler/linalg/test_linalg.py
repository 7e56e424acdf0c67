"""Kernels as MLIR: the text of three examples, what upstream MLIR says of it, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deuteron.cli.app import app
from deuteron.compiler import KernelSource, compile
from deuteron.compiler.errors import UnsupportedOp

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
GOLDEN = {
    "add_kernel": "vector_add",
    "softmax_kernel": "softmax",
    "matmul_kernel": "matmul",
    "layer_norm_fwd": "layer_norm",
}
OTHERS = {
    "online_softmax_kernel": "softmax",
    "softmax_backward_kernel": "softmax",
    "rms_norm_fwd": "rms_norm",
    "rms_norm_dx": "rms_norm",
    "rms_norm_partials": "rms_norm",
    "sum_parts": "split_k",
    "attention_forward": "attention",
}


def emitted(kernel: str, file: str) -> str:
    done = CliRunner().invoke(app, ["compile", f"{EXAMPLES / file}.py:{kernel}", "--emit", "linalg", "-q"])
    assert done.exit_code == 0, done.output
    return done.output


def linalg_of(text: str, signature: dict[str, str], constexprs: dict[str, object]) -> str:
    source = KernelSource.from_text(f"import triton\nimport triton.language as tl\n{text}", "kernel")
    made = compile(source, signature, constexprs, stop_after="linalg").asm["linalg"]
    assert isinstance(made, str)
    return made


@pytest.mark.parametrize("kernel", GOLDEN)
def test_the_text_of_an_example_is_as_it_was(kernel: str):
    """To take a change over: ``deuteron compile examples/FILE.py:KERNEL --emit linalg -q -o expected/KERNEL.mlir``."""
    assert emitted(kernel, GOLDEN[kernel]) == (HERE / "expected" / f"{kernel}.mlir").read_text()


@pytest.mark.skipif(
    find_spec("iree") is None, reason="MLIR's parser and verifier are not installed: iree-base-compiler"
)
@pytest.mark.parametrize(("kernel", "file"), (GOLDEN | OTHERS).items())
def test_mlir_takes_it(kernel: str, file: str):
    from iree.compiler import ir  # type: ignore[import-not-found]

    with ir.Context():
        module = ir.Module.parse(emitted(kernel, file))
        assert module.operation.verify()


def test_a_product_is_the_shape_that_structured_compilers_read():
    text = emitted("matmul_kernel", "matmul")
    assert text.count("linalg.matmul") == 1 and text.count("memref.reinterpret_cast") == 3
    assert text.count("bufferization.to_tensor") == 2 and text.count("bufferization.materialize_in_destination") == 1
    assert re.search(r"scf\.for .* iter_args\(.*\) -> \(tensor<64x64xf32>\) : i32", text)


PAD = """
@triton.jit
def kernel(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i, mask=i < n, other={other}), mask=i < n)
"""


@pytest.mark.parametrize(
    ("other", "dtype", "constant"),
    [
        ("0.0", "f32", "0.0 : f32"),
        ("float('-inf')", "f32", "0xFF800000 : f32"),
        ("float('nan')", "bf16", "0x7FC0 : bf16"),
        ("2.5", "f16", "2.5"),
        ("-7", "i32", "-7 : i32"),
    ],
)
def test_elements_outside_are_what_the_author_says(other: str, dtype: str, constant: str):
    text = linalg_of(PAD.format(other=other), {"x": f"*{dtype}", "out": f"*{dtype}", "n": "i32"}, {"N": 64})
    (pad,) = re.findall(r"%pad = arith.constant (.*)", text)
    assert pad.startswith(constant)
    assert re.search(rf"linalg.fill ins\(%pad : {dtype}\) outs\(%alloc : memref<64x{dtype}>\)", text)


REFUSED = {
    "gather": "    j = tl.load(x + i)\n    tl.store(out + i, tl.load(x + j))",
    "unknown step": "    tl.store(out + i, tl.load(x + tl.load(out) * tl.program_id(0) + i // 3))",
    "scan": "    tl.store(out + i, tl.cumsum(tl.load(x + i), 0))",
    "atomic": "    tl.atomic_add(out + i, tl.load(x + i))",
    "argmax": "    tl.store(out, tl.argmax(tl.load(x + i), 0))",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_box_or_has_no_counterpart_is_refused_at_its_place(what: str):
    text = f"@triton.jit\ndef kernel(x, out, N: tl.constexpr):\n    i = tl.arange(0, N)\n{REFUSED[what]}\n"
    with pytest.raises(UnsupportedOp, match="cannot be written as linalg") as caught:
        linalg_of(text, {"x": "*i32", "out": "*i32"}, {"N": 64})
    assert caught.value.location is not None
    if what in ("gather", "atomic"):
        lines = ["", "import", "import", *text.splitlines()]
        assert any(word in lines[caught.value.location.line] for word in ("tl.load(x + j)", "tl.atomic_add"))


def test_the_command_says_where_and_exits_with_2():
    command = ["compile", f"{EXAMPLES}/dropout.py:seeded_dropout_kernel", "--emit", "linalg", "-q"]
    done = subprocess.run([sys.executable, "-m", "deuteron", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "mul_high cannot be written as linalg" in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
