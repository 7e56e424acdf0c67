"""Inductor's kernels compiled by deuteron: what it needs of PyTorch, compiling and launching without PyTorch, and with
it ``torch.compile`` beside eager in float64."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compat.inductor import switch
from deuteron.compat.inductor.compilation import compile_configuration
from deuteron.compat.inductor.launcher import runner
from deuteron.compiler.errors import SignatureError

#: As Inductor describes a kernel: what _create_compile_meta and _create_compile_options give.
OPTIONS = {"num_warps": 4, "num_stages": 1, "debug": True, "sanitize_overflow": False, "enable_fp_fusion": True}
CUDA_OPTIONS = {**OPTIONS, "launch_cooperative_grid": False, "launch_pdl": False, "enable_reflect_ftz": False}


@triton.jit
def scaled(in_ptr, out_ptr, factor, xnumel, XBLOCK: tl.constexpr):
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x = tl.load(in_ptr + i, i < xnumel)
    tl.store(out_ptr + i, x * factor, i < xnumel)


def described(device: str, capability: int | str) -> dict[str, object]:
    return {
        "signature": {
            "in_ptr": "*fp32", "out_ptr": "*fp32", "factor": "fp32", "xnumel": "i32", "XBLOCK": "constexpr"
        },
        "constants": {"XBLOCK": 64},
        "configs": [{(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]}],
        "device_type": device,
        "cc": capability,
        "device": 0,
    }  # fmt: skip


class Array:
    """An array as Inductor passes it: asked for its address and nothing else."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return self.array.ctypes.data


def test_a_kernel_as_inductor_describes_it_is_compiled_and_launched():
    kernel = compile_configuration(scaled, described("cpu", ""), OPTIONS)
    run = runner(kernel, described("cpu", ""))
    x = np.arange(100, dtype=np.float32)
    out = triton.get_device("cpu").array(np.zeros_like(x))
    run(2, 1, 1, 0, Array(triton.get_device("cpu").array(x).numpy), Array(out.numpy), 2.5, 100)
    assert (out.numpy == 2.5 * x).all()
    run(0, 1, 1, 0, Array(x), Array(x), 9.0, 100)  # an empty grid
    assert x[1] == 1


class FakeAutotuner:
    """As Inductor's: a kernel, its configurations, here block sizes, and what it says of each."""

    fn = scaled

    def __init__(self, *blocks: int) -> None:
        self.configs = list(blocks)

    def _create_compile_meta(self, block: int) -> dict[str, object]:
        return {**described("cpu", ""), "constants": {"XBLOCK": block}}

    def _create_compile_options(self, block: int, meta: object) -> dict[str, object]:
        return OPTIONS


def test_each_configuration_is_compiled_once_and_begun_early(monkeypatch: pytest.MonkeyPatch):
    begun: list[object] = []

    def counted(fn: object, meta: dict[str, object], options: object) -> object:
        begun.append(meta["constants"])
        return compile_configuration(fn, meta, options)

    monkeypatch.setattr(switch, "compile_configuration", counted)
    compilations = switch.Compilations()
    compilations.begin(FakeAutotuner(32, 64))
    again = FakeAutotuner(32, 64)  # the same text, loaded a second time
    kernels = [compilations.take(again, block)[1] for block in again.configs]
    assert sorted(c["XBLOCK"] for c in begun) == [32, 64]
    assert [kernel.variant.constants["XBLOCK"] for kernel in kernels] == [32, 64]
    alone = FakeAutotuner()  # what Inductor tries later is in no list
    assert compilations.take(alone, 128)[1].variant.constants["XBLOCK"] == 128


@pytest.mark.parametrize(("capability", "arch"), [(80, "sm_80"), (90, "sm_90a"), (100, "sm_100a")])
def test_targets_are_those_of_the_devices(capability: int, arch: str):
    kernel = compile_configuration(scaled, described("cuda", capability), CUDA_OPTIONS)
    assert f".target {arch}" in kernel.asm["ptx"]
    assert kernel.metadata.num_warps == 4


def test_cooperative_reductions_ask_for_a_grid_that_runs_at_once():
    asked = {**CUDA_OPTIONS, "launch_cooperative_grid": True}
    for target in (("cuda", 90), ("cpu", "")):
        assert compile_configuration(scaled, described(*target), asked).metadata.recipe.cooperative
        assert not compile_configuration(scaled, described(*target), CUDA_OPTIONS).metadata.recipe.cooperative


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(SignatureError, match="ir_override"):
        compile_configuration(scaled, described("cuda", 90), {**CUDA_OPTIONS, "ir_override": "kernel.ttir"})


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("sys.modules['torch'] = None", "PyTorch cannot be imported"),
        ("sys.modules['torch'] = module('torch', __version__='2.5.1')", "PyTorch 2.5.1 is too old"),
        ("sys.modules['triton'] = module('triton')", "Triton itself is imported already"),
    ],
    ids=["no torch", "old torch", "triton first"],
)
def test_what_is_missing_is_said(before: str, message: str):
    code = (
        "import sys, types\n"
        "def module(name, **names):\n"
        "    made = types.ModuleType(name)\n    made.__dict__.update(names)\n    return made\n"
        f"{before}\n"
        "from deuteron.compat import inductor\n"
        "from deuteron.compiler.errors import DeuteronError\n"
        "try: inductor.install()\n"
        "except DeuteronError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert message in done.stdout and "hint: " in done.stdout


PROLOGUE = """
from deuteron.compat import inductor
inductor.install()
inductor.install()
import torch, torch.nn.functional as F, triton
import torch._inductor.config as config, torch._inductor.metrics as metrics
assert triton.__name__ == "deuteron.compat.triton"
config.cpu_backend = "triton"
torch.manual_seed(0)

def outcome(function, inputs):
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = function(*inputs)
    weight = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view(out.shape).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, [x for x in inputs if x.requires_grad], weight)]

def compare(function, *inputs):
    torch._dynamo.reset()
    before = metrics.generated_kernel_count
    found = outcome(torch.compile(function, fullgraph=True), inputs)
    assert metrics.generated_kernel_count > before
    exact = outcome(function, [x.double() if x.is_floating_point() else x for x in inputs])
    for value, wanted in zip(found, exact, strict=True):
        assert value.dtype == torch.float32 and value.shape == wanted.shape
        torch.testing.assert_close(value.double(), wanted, atol=2e-6 * wanted.abs().max().item() + 1e-7, rtol=2e-6)

R = torch.randn
"""

BLOCK = """
d, heads = 64, 4
def block(x, norm, qkv, out, gate_up, down):
    b, t, _ = x.shape
    q, k, v = (p.view(b, t, heads, d // heads).transpose(1, 2)
               for p in (F.layer_norm(x, (d,), norm) @ qkv).chunk(3, -1))
    hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
    weights = (q @ k.mT * (d // heads) ** -0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    x = x + (weights @ v).transpose(1, 2).reshape(x.shape) @ out
    gate, up = (F.rms_norm(x, (d,), norm) @ gate_up).chunk(2, -1)
    return x + (F.silu(gate) * up) @ down
compare(block, R(2, 19, d), R(d), R(d, 3 * d) / 8, R(d, d) / 8, R(d, 4 * d) / 8, R(2 * d, d) / 11)
"""

CASES = {
    "elementwise": "compare(lambda x, y: torch.sin(x) * y + F.gelu(x) - torch.rsqrt(y.abs() + 1), R(9, 57), R(9, 57))",
    "reductions": "compare(lambda x: x.sum(0) + x.amax(1)[:57] * x.std(), R(90, 57))",
    "softmax": "compare(lambda x: F.softmax(x, -1), R(33, 700))",
    "layer norm": "compare(lambda x, w, b: F.layer_norm(x, (700,), w, b), R(33, 700), R(700), R(700))",
    "rms norm": "compare(lambda x, w: F.rms_norm(x, (700,), w), R(33, 700), R(700))",
    "cross entropy": "compare(lambda x, t: F.cross_entropy(x, t), R(33, 3000), torch.randint(0, 3000, (33,)))",
    "scan": "compare(lambda x: x.cumsum(1), R(33, 300))",
    "product": "compare(lambda x, y: torch.relu(x @ y + 1), R(33, 57), R(57, 20))",
    "block": BLOCK,
}

with_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.fixture
def inductor(program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a program with empty caches of Inductor."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    return lambda text: program(PROLOGUE + text)


@with_torch
@pytest.mark.parametrize("case", CASES)
def test_compiled_graphs_compute_what_eager_does(inductor, case: str):
    inductor(CASES[case])


@with_torch
def test_kernels_of_the_program_are_launched_from_graphs(inductor):
    inductor("""
import triton.language as tl
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

@torch.library.triton_op("examples::add", mutates_args=())
def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(add)[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out

x, y = R(999), R(999)
found = torch.compile(lambda x, y: op(x.sin(), y) * 3, fullgraph=True)(x, y)
torch.testing.assert_close(found, (x.sin() + y) * 3)
""")


DECORATED = """
import torch, triton, triton.language as tl

BLOCKS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 4), (128, 8))]

@triton.autotune(configs=BLOCKS, key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def add(x, out, n, TYPE: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None if EVEN else i < n
    tl.store(out + i, (tl.load(x + i, mask) + 1).to(TYPE).to(tl.float32), mask)

@triton.autotune(configs=BLOCKS, key=["n"], restore_value=["out"])
@triton.jit
def grow(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(out + i, i < n), i < n)

def grid(args):
    return (triton.cdiv(args["n"], args["BLOCK"]),)

def both(x, **options):
    out = torch.empty_like(x)
    add[grid](x, out, x.numel(), tl.float16, **options)
    grow[grid](x, out, x.numel())
    return out * 2

x = torch.arange(300.)
"""


@with_torch
def test_kernels_of_programs_that_import_triton_are_found_before_inductor_is(program, tmp_path: Path, monkeypatch):
    """Dynamo traces into what it takes for a function; with configurations, heuristics, options and dtypes."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    program(f"""{DECORATED}
for options in ({{}}, {{"num_warps": 2}}):
    torch._dynamo.reset()
    found = torch.compile(lambda x: both(x, **options), fullgraph=True)(x)
    torch.testing.assert_close(found, (2 * x + 1) * 2)
""")


@with_torch
def test_kernels_with_configurations_are_traced_by_the_library(program):
    program(f"""{DECORATED}
out = torch.zeros(300)
torch.library.wrap_triton(grow)[grid](x, out, 300)
torch.testing.assert_close(out, x)
""")


@with_torch
def test_pytorch_is_told_which_arrays_kernels_write(program):
    """It copies what is written, and takes all for written where nobody tells."""
    printed = program(f"""{DECORATED}
import torch._dynamo
from torch._higher_order_ops.triton_kernel_wrap import identify_accessed_tensors

def names(dependencies):
    return sorted(dependency.name for dependency in dependencies)

for kernel, given in ((grow, dict(x=x, out=x, n=300)), (add, dict(x=x, out=x, n=300, TYPE=tl.float16, EVEN=False))):
    found = identify_accessed_tensors(kernel, given, {{}}).read_writes
    print(names(found.reads), names(found.writes))
""")
    assert printed.splitlines() == ["['out', 'x'] ['out']", "['x'] ['out']"]


@with_torch
def test_cooperative_reductions(inductor):
    """Kernels whose programs wait for each other, forward only: with them PyTorch 2.13 fails to write some backward
    graphs."""
    inductor("""
from deuteron.compiler.targets.cpu.pool import ThreadPool
together, execute = [], ThreadPool.execute_together
ThreadPool.execute_together = lambda self, total, launch: together.append(total) or execute(self, total, launch)
config.triton.force_cooperative_reductions = True
for function, shape in (
    (lambda x: F.softmax(x, -1) * x.std(1, keepdim=True), (1, 50000)),
    (lambda x: x.sum(1) + x.amax(1), (3, 20000)),
):
    torch._dynamo.reset()
    x = R(shape)
    found = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(found.double(), function(x.double()), atol=1e-5, rtol=2e-6)
assert len(together) >= 2
""")


@with_torch
def test_scans_over_several_programs(inductor):
    """Of rows longer than a program takes: each program waits for the sums of those before it."""
    inductor("""
for dtype in (torch.float32, torch.int64):
    for function in (lambda x: x.cumsum(0), lambda x: x.sign().cumprod(0)):
        torch._dynamo.reset()
        before = metrics.generated_kernel_count
        x = torch.randint(-3, 3, (70001,)).to(dtype)
        found = torch.compile(function, fullgraph=True)(x)
        assert metrics.generated_kernel_count > before
        torch.testing.assert_close(found, function(x.double()).to(found.dtype))
""")


@with_torch
def test_programs_that_import_triton_need_no_switch(program):
    """Their torch.compile would find no compiler."""
    printed = program("""
import torch, triton
import torch._inductor.config as config, torch._inductor.metrics as metrics
config.cpu_backend = "triton"
x = torch.randn(33, 57)
found = torch.compile(lambda x: x.sin().sum(1), fullgraph=True)(x)
torch.testing.assert_close(found.double(), x.double().sin().sum(1), atol=1e-5, rtol=2e-6)
print(metrics.generated_kernel_count)
""")
    assert int(printed) > 0


def test_a_pytorch_that_is_too_old_leaves_programs_alone(program, tmp_path: Path):
    folder = tmp_path / "torch" / "_inductor"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("__version__ = '2.5.1'")
    (folder / "__init__.py").touch()
    (folder / "compile_fx.py").write_text("ready = True")
    printed = program("""
import warnings
with warnings.catch_warnings(record=True) as seen:
    from torch._inductor import compile_fx
print(compile_fx.ready, *(str(warning.message) for warning in seen))
""")
    assert printed.startswith("True torch.compile finds no compiler of Triton kernels: ") and "2.5.1" in printed
