"""What ``gemm.py`` does in child processes: compile candidates ahead, check and time them on one device."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from isolated import FatalInChild
from sources import load_kernels
from timing import Call, Timing, race, relative_error

#: Largest relative error, in the Frobenius norm, of a result that may be timed.
TOLERANCE = 1e-2
#: Name of the library that candidates are compared with: cuBLAS on a GPU.
PEER = "torch"
_TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "fp8": torch.float8_e4m3fn}
_DEUTERON = {"bf16": "bf16", "f16": "f16", "f32": "f32", "fp8": "f8e4m3"}


@dataclass(frozen=True)
class Problem:
    """c [M, N] = a [M, K] b [K, N]; ``transposed``: b is stored as [N, K]. fp8 inputs give a bf16 result."""

    m: int
    n: int
    k: int
    dtype: str
    transposed: bool
    device: str

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

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
        """Problems for which this is equal run the same variant of a candidate."""
        return tuple("1" if i == 1 else i % 16 == 0 for i in self.integers)


@dataclass(frozen=True)
class Candidate:
    """One configuration of the kernel under one compiler; ``schedule``: further options of deuteron."""

    package: str
    blocks: tuple[int, int, int]
    group: int
    warps: int
    stages: int
    schedule: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        extra = "".join(f" {name}={value}" for name, value in self.schedule)
        return f"{'x'.join(map(str, self.blocks))} g{self.group} w{self.warps} s{self.stages}{extra}"

    @property
    def options(self) -> dict[str, object]:
        """Keywords of the launch."""
        m, n, k = self.blocks
        tiles = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": self.group}
        return {**tiles, "ACTIVATION": "", "num_warps": self.warps, "num_stages": self.stages, **dict(self.schedule)}

    def grid(self, problem: Problem) -> tuple[int]:
        """Programs of a launch: one for each tile of c."""
        return (-(-problem.m // self.blocks[0]) * -(-problem.n // self.blocks[1]),)


@functools.cache
def kernel(package: str) -> Any:
    """The example's kernel without its autotuner."""
    return load_kernels("matmul", package).matmul_kernel.fn


class Compiler:
    """A service that compiles candidates into the disk caches of both compilers."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        del announce

    def build(self, candidate: Candidate, problem: Problem) -> float:
        """Compile without launching; seconds."""
        begin = time.perf_counter()
        if candidate.package == "triton":
            kinds: list[Any] = [_TORCH[problem.dtype], _TORCH[problem.dtype], _TORCH[problem.result]]
        else:
            names = [_DEUTERON[d] for d in (problem.dtype, problem.dtype, problem.result)]
            kinds = [f"*{name}:16@{problem.device}" for name in names]
        kernel(candidate.package).warmup(*kinds, *problem.integers, grid=(1,), **candidate.options)
        return time.perf_counter() - begin


class Bench:
    """A service that holds one problem's arrays and runs candidates on them."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce

    def prepare(self, problem: Problem) -> float | None:
        """Draw N(0, 1) inputs and compute the reference in f32; the peer's relative error, None where it cannot run."""
        torch.manual_seed(0)
        self.problem = problem
        self.calls: dict[str, Call] = {}
        p, dtype = problem, _TORCH[problem.dtype]
        self.a = torch.randn(p.m, p.k, device=p.device).to(dtype)
        stored = torch.randn((p.n, p.k) if p.transposed else (p.k, p.n), device=p.device).to(dtype)
        self.b = stored.t() if p.transposed else stored
        self.c = torch.empty(p.m, p.n, device=p.device, dtype=_TORCH[p.result])
        self.wanted = self.a.float() @ self.b.float()
        try:
            return self._admit(PEER, self._peer())
        except RuntimeError:
            if p.dtype != "fp8":
                raise
            return None

    def _peer(self) -> Call:
        if self.problem.dtype != "fp8":
            return functools.partial(torch.mm, self.a, self.b, out=self.c)
        # Takes b with contiguous columns only; fast_accum adds in the tensor cores, as the kernels here do.
        b, one = self.b.t().contiguous().t(), torch.ones((), device=self.problem.device)
        return functools.partial(
            torch._scaled_mm, self.a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=self.c
        )

    def check(self, candidate: Candidate) -> float:
        """Launch once on a poisoned result; the relative error. Only candidates that pass can be timed."""
        launch = kernel(candidate.package)[candidate.grid(self.problem)]
        # b's own strides say how it is stored; both compilers take the tensor's address only.
        arguments = (self.a, self.b, self.c, *self.problem.integers)
        return self._admit(
            f"{candidate.package} {candidate}", functools.partial(launch, *arguments, **candidate.options)
        )

    def _admit(self, name: str, call: Call) -> float:
        self._announce(name)
        self.c.fill_(float("nan"))
        try:
            call()
            error = relative_error(self.c, self.wanted)
        except Exception as problem:
            self._survive(problem)
            raise
        if not error < TOLERANCE:
            raise ValueError(f"wrong result: relative error {error:.1e}")
        self.calls[name] = call
        return error

    def _survive(self, problem: Exception) -> None:
        """After an illegal access a CUDA context takes no more work: say so, and another process begins anew."""
        if self.problem.device.startswith("cuda"):
            try:
                torch.cuda.synchronize()
            except RuntimeError:
                raise FatalInChild(f"{type(problem).__name__}: {problem}") from problem

    def admitted(self) -> list[str]:
        """Who may be timed: the peer, and the candidates that passed."""
        return list(self.calls)

    def race(self, names: list[str], rounds: int) -> dict[str, Timing]:
        """Time admitted candidates in turns."""
        return race({name: self.calls[name] for name in names}, self.problem.device, rounds, self._announce)
