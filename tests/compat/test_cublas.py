"""cuBLAS as programs find it in Triton's compiled library; PyTorch's product on whatever device the arrays are."""

from __future__ import annotations

import pytest

PROGRAM = """
import pytest, torch
from triton._C.libtriton import nvidia

blas = nvidia.cublas.CublasLt(torch.empty(1024, dtype=torch.uint8))
a, b = torch.arange(12.0).reshape(3, 4), torch.arange(8.0).reshape(2, 4)
c, d = torch.full((3, 2), 7.0), torch.empty(3, 2)
blas.gemm(a, b, c, d, 2.0, 3.0)
assert torch.equal(d, 2 * (a @ b.T) + 21)
blas.matmul(a, b, c)
assert torch.equal(c, a @ b.T)
for wrong in ((a, b.T, c), (a, b, c.T), (a, b.double(), c), (a[0], b, c)):
    with pytest.raises(RuntimeError):
        blas.matmul(*wrong)
"""


def test_products_by_torch(program):
    pytest.importorskip("torch", reason="needs PyTorch")
    program(PROGRAM)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn"])
def test_products_on_a_gpu(torch, dtype):
    from deuteron.compat.triton._C.libtriton import CublasLt

    a, b = (torch.randint(-2, 3, (64, 128), device="cuda").to(getattr(torch, dtype)) for _ in range(2))
    c = torch.empty((64, 64), device="cuda", dtype=a.dtype)
    CublasLt(torch.empty(1 << 20, device="cuda", dtype=torch.uint8)).matmul(a, b, c)
    assert torch.equal(c.float(), (a.float() @ b.float().T).to(c.dtype).float())
