"""What ``gemm.py`` does in child processes: compile candidates ahead, check and time them on one device."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from bench import Bench
from candidates import Candidate
from sources import load_kernels
from timing import Call

_TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "fp8": torch.float8_e4m3fn}
_DEUTERON = {"bf16": "bf16", "f16": "f16", "f32": "f32", "fp8": "f8e4m3"}


@dataclass(frozen=True)
class Product:
    """c [M, N] = a [M, K] b [K, N]; ``transposed``: b is stored as [N, K]. fp8 (e4m3) inputs give a bf16 result."""

    m: int
    n: int
    k: int
    dtype: str
    transposed: bool
    device: str

    def __str__(self) -> str:
        return f"{self.dtype} {self.m}x{self.n}x{self.k}{' b.T' if self.transposed else ''}"

    @property
    def operations(self) -> float:
        """2 M N K."""
        return 2.0 * self.m * self.n * self.k

    @property
    def result(self) -> str:
        """Dtype of c."""
        return "bf16" if self.dtype == "fp8" else self.dtype

    @property
    def integers(self) -> tuple[int, ...]:
        """The kernel's arguments after the three arrays: sizes and strides in elements."""
        strides_b = (1, self.k) if self.transposed else (self.n, 1)
        return (self.m, self.n, self.k, self.k, 1, *strides_b, self.n, 1)

    @property
    def specialised(self) -> tuple[object, ...]:
        """Compilers treat 1 and multiples of 16 apart."""
        return (self.dtype, *("1" if i == 1 else i % 16 == 0 for i in self.integers))


@functools.cache
def kernel(package: str) -> Any:
    """The example's kernel without its autotuner."""
    return load_kernels("matmul", package).matmul_kernel.fn


def options(candidate: Candidate) -> dict[str, object]:
    """Keywords of a launch."""
    return {**dict(candidate.blocks), "ACTIVATION": "", **candidate.schedule}


class Compiler:
    """A service that compiles candidates into the disk caches of both compilers."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        del announce

    def build(self, candidate: Candidate, product: Product) -> float:
        """Compile without launching; seconds."""
        begin = time.perf_counter()
        dtypes = (product.dtype, product.dtype, product.result)
        if candidate.package == "triton":
            kinds: list[Any] = [_TORCH[d] for d in dtypes]
        else:
            kinds = [f"*{_DEUTERON[d]}:16@{product.device}" for d in dtypes]
        for grid in candidate.grids:
            kernel(candidate.package).warmup(*kinds, *product.integers, grid=grid, **options(candidate))
        return time.perf_counter() - begin


class Products(Bench):
    """A service for one product at a time."""

    tolerance = 1e-2

    def draw(self, problem: Product) -> dict[str, Callable[[], Call]]:
        """Inputs, the product in f32, and torch's: cuBLAS on a GPU."""
        p, dtype = problem, _TORCH[problem.dtype]
        self.product = p
        self.a = torch.randn(p.m, p.k, device=p.device).to(dtype)
        stored = torch.randn((p.n, p.k) if p.transposed else (p.k, p.n), device=p.device).to(dtype)
        self.b = stored.t() if p.transposed else stored
        self.c = torch.empty(p.m, p.n, device=p.device, dtype=_TORCH[p.result])
        self.outputs, self.wanted = [self.c], [self.a.float() @ self.b.float()]
        return {"torch": self._scaled_mm if p.dtype == "fp8" else self._mm}

    def _mm(self) -> Call:
        return functools.partial(torch.mm, self.a, self.b, out=torch.empty_like(self.c))

    def _scaled_mm(self) -> Call:
        """It takes b with contiguous columns only; fast_accum adds in the tensor cores, as the kernels here do."""
        b, one = self.b.t().contiguous().t(), torch.ones((), device=self.product.device)
        return functools.partial(torch._scaled_mm, self.a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)

    def launch(self, candidate: Candidate) -> Call:
        """The kernel on the product's arrays; strides say how b is stored."""
        p = self.product
        tiles = -(-p.m // candidate.block("BLOCK_SIZE_M")) * -(-p.n // candidate.block("BLOCK_SIZE_N"))
        launch = kernel(candidate.package)[(tiles,)]
        return functools.partial(launch, self.a, self.b, self.c, *p.integers, **options(candidate))
