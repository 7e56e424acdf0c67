"""PyTorch beside the alias, and kernels as its operators. Without PyTorch, which is no dependency, they are skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

PAGE = Path(__file__).parents[2] / "docs" / "triton.md"
INSTALL = "from deuteron.compat import triton; triton.install()"


def page_example() -> str:
    (code,) = PAGE.read_text().split("```python\n")[1:]
    return code.partition("```")[0]


@pytest.mark.parametrize(
    "order", [("import torch", INSTALL), (INSTALL, "import torch")], ids=["torch first", "alias first"]
)
def test_pytorch_works_beside_the_alias(program, order: tuple[str, str]):
    program(
        "\n".join(order)
        + """
import sys, triton
def f(x):
    return torch.sin(x) * 2 + x.sum()
x = torch.randn(100)
with torch.profiler.profile() as found:
    f(x)
assert len(found.events()) > 0
for backend in ("eager", "aot_eager"):
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(f, backend=backend, fullgraph=True)(x), f(x))
assert triton.language is sys.modules["deuteron.language"]
"""
    )


CHECK = """
def reference(gate, up):
    return torch.nn.functional.silu(gate) * up

def outcome(function, *inputs):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    out = function(*inputs)
    return [out, *torch.autograd.grad((out * torch.arange(out.numel()).view(out.shape)).sum(), inputs)]

def compare(function, *inputs):
    for found, wanted in zip(outcome(function, *inputs), outcome(reference, *inputs), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-5)

inputs = torch.randn(37, 53), torch.randn(37, 53)
torch.manual_seed(0)
"""


def test_the_operator_of_the_page(program):
    """Against torch's own, with gradients, under fullgraph and with other shapes; opcheck looks at fake tensors."""
    program(
        page_example()
        + CHECK
        + """
compare(swiglu, *inputs)
for backend in ("eager", "aot_eager", "inductor"):
    torch._dynamo.reset()
    compiled = torch.compile(lambda gate, up: swiglu(gate * 1, up) + 0, fullgraph=True, backend=backend)
    compare(compiled, *inputs)
    compare(compiled, torch.randn(3, 5), torch.randn(3, 5))
torch.library.opcheck(swiglu, tuple(x.requires_grad_() for x in inputs))
x = torch.randn(4, 7)
torch.testing.assert_close(layer(x, torch.ones(4, 4)), torch.nn.functional.silu(x @ x.T).sum())
"""
    )


def test_kernels_in_a_triton_op(program):
    program(
        INSTALL
        + "\n"
        + page_example()
        .replace("import deuteron as triton", "import triton")
        .replace("import deuteron.language as tl", "import triton.language as tl")
        + CHECK
        + """
@torch.library.triton_op("examples::open", mutates_args=())
def opened(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(gate)
    torch.library.wrap_triton(swiglu_forward)[programs(out.numel())](gate, up, out, out.numel(), BLOCK=1024)
    return out

opened.register_autograd(lambda ctx, grad: swiglu_gradients(grad, *ctx.saved_tensors), setup_context=keep)
compare(opened, *inputs)
compare(torch.compile(opened, fullgraph=True, backend="aot_eager"), *inputs)
"""
    )


def test_dtypes_and_limits_of_pytorch_in_kernels(program):
    """Compiled and as Python; a dtype is a value, by name, and not a type of the language."""
    text = """
import torch, triton, triton.language as tl

@triton.jit
def clipped(x, out, T: tl.constexpr):
    MAX: tl.constexpr = torch.finfo(torch.float32).max
    value = tl.minimum(tl.load(x), MAX)
    if T == torch.bfloat16:
        value = value / 2
    elif T.is_floating_point:
        value = value / torch.finfo(T).max
    else:
        value = torch.iinfo(T).max + 0.0
    tl.store(out, value)

x, out = torch.full((1,), float("inf")), torch.empty(1)
most = torch.finfo(torch.float32).max
for type, wanted in ((torch.bfloat16, most / 2), (torch.float32, 1.0), (torch.int8, 127.0)):
    clipped[(1,)](x, out, type)
    assert out.item() == wanted, (type, out)
"""
    program(text)
    program("import os; os.environ['TRITON_INTERPRET'] = '1'" + text)
