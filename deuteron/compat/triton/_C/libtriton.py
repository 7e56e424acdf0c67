"""Of Triton's compiled library what programs outside Triton use: cuBLAS, to compare their products with."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any


class CublasLt:
    """Matrix products by cuBLAS, which PyTorch brings and calls.

    Args:
        workspace: memory that Triton's class hands to cuBLAS. PyTorch gives cuBLAS a workspace of its own, so this one
            is left alone.
    """

    def __init__(self, workspace: Any) -> None:
        self.workspace = workspace
        self._torch: Any = importlib.import_module("torch")

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """``c = a @ b.T``; (M, K), (N, K) and (M, N) on one GPU, all of f16, bf16, f32 or f8e4m3fn.

        Raises:
            RuntimeError: the shapes or types do not fit.
        """
        self._check(a, b, c)
        if a.dtype == self._torch.float8_e4m3fn:
            c.copy_(self._scaled(a, b, c.dtype))
        else:
            self._torch.mm(a, b.T, out=c)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """``d = alpha * a @ b.T + beta * c``; shapes and types as for :meth:`matmul`, f16, bf16 and f32 alone.

        Raises:
            RuntimeError: the shapes or types do not fit.
        """
        self._check(a, b, c)
        self._torch.addmm(c, a, b.T, beta=beta, alpha=alpha, out=d)

    def _scaled(self, a: Any, b: Any, dtype: Any) -> Any:
        one = self._torch.ones((), device=a.device, dtype=self._torch.float32)
        return self._torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=dtype, use_fast_accum=True)

    def _check(self, a: Any, b: Any, c: Any) -> None:
        if any(x.dim() != 2 for x in (a, b, c)) or a.shape[1] != b.shape[1]:
            raise RuntimeError(f"a @ b.T wants (M, K) and (N, K), not {tuple(a.shape)} and {tuple(b.shape)}")
        if tuple(c.shape) != (a.shape[0], b.shape[0]):
            raise RuntimeError(f"a @ b.T has the shape {(a.shape[0], b.shape[0])}, c has {tuple(c.shape)}")
        if a.dtype != b.dtype:
            raise RuntimeError(f"a is {a.dtype}, b is {b.dtype}: cuBLAS wants one type")


nvidia = SimpleNamespace(cublas=SimpleNamespace(CublasLt=CublasLt))
amd = SimpleNamespace()  # programs import it beside nvidia; there is no target for GPUs of AMD's
