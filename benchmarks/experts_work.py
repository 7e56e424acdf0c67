"""What ``experts.py`` does in child processes: compile candidates ahead, check and time them on one device."""

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


@dataclass(frozen=True)
class Experts:
    """out [tokens * top_k, N] from x [tokens, K] and w [experts, N, K], bf16."""

    tokens: int
    experts: int
    top_k: int
    n: int
    k: int
    device: str

    def __str__(self) -> str:
        return f"{self.top_k} of {self.experts} {self.tokens}x{self.n}x{self.k}"

    @property
    def operations(self) -> float:
        """2 tokens top_k N K."""
        return 2.0 * self.tokens * self.top_k * self.n * self.k

    @property
    def specialised(self) -> tuple[object, ...]:
        """Compilers treat 1 and multiples of 16 apart; all of a problem but the tiles is known."""
        numbers = (self.tokens * self.top_k, self.n, self.k)
        return (self.top_k, *("1" if i == 1 else i % 16 == 0 for i in numbers))


@functools.cache
def module(package: str) -> Any:
    """The example under one of the compilers."""
    return load_kernels("experts", package)


def options(candidate: Candidate, problem: Experts) -> dict[str, object]:
    """Keywords of a launch."""
    return {**dict(candidate.blocks), "TOP_K": problem.top_k, **candidate.schedule}


class Compiler:
    """A service that compiles candidates into the disk caches of both compilers, for numbers of tiles that are no
    multiples of 16; one that is compiles at its first launch, before it is timed."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        del announce

    def build(self, candidate: Candidate, problem: Experts) -> float:
        """Compile without launching; seconds."""
        begin = time.perf_counter()
        if candidate.package == "triton":
            kinds: list[Any] = [*[torch.bfloat16] * 3, *[torch.int32] * 2]
        else:
            kinds = [*[f"*bf16:16@{problem.device}"] * 3, *[f"*i32:16@{problem.device}"] * 2]
        numbers = (problem.tokens * problem.top_k, 7, problem.n, problem.k)
        made = module(candidate.package).experts_kernel
        made.warmup(*kinds, *numbers, grid=(1,), **options(candidate, problem))
        return time.perf_counter() - begin


class ExpertsBench(Bench):
    """A service for one problem at a time."""

    tolerance = 1e-2

    def draw(self, problem: Experts) -> dict[str, Callable[[], Call]]:
        """Inputs, choices without repetition, and the result in f32."""
        p = self.problem = problem
        self.x = torch.randn(p.tokens, p.k, device=p.device).to(torch.bfloat16)
        self.w = torch.randn(p.experts, p.n, p.k, device=p.device).to(torch.bfloat16)
        self.out = torch.empty(p.tokens * p.top_k, p.n, device=p.device, dtype=torch.bfloat16)
        self.chosen = torch.rand(p.tokens, p.experts).argsort(1)[:, : p.top_k]
        wanted = self.chosen.flatten().to(p.device)
        self.rows = [(wanted == expert).nonzero().flatten() for expert in range(p.experts)]
        result = torch.empty_like(self.out, dtype=torch.float32)
        for rows, matrix in zip(self.rows, self.w, strict=True):
            result[rows] = self.x[rows // p.top_k].float() @ matrix.float().T
        self.outputs, self.wanted = [self.out], [result]
        return {"torch": self._loop}

    def _loop(self) -> Call:
        out, top_k = torch.empty_like(self.out), self.problem.top_k

        def run() -> torch.Tensor:
            for rows, matrix in zip(self.rows, self.w, strict=True):
                out[rows] = self.x[rows // top_k] @ matrix.T
            return out

        return run

    def launch(self, candidate: Candidate) -> Call:
        """The kernel on the problem's arrays, with tables for the candidate's height of tiles."""
        p, made = self.problem, module(candidate.package)
        tables = made.route(self.chosen.numpy(), p.experts, candidate.block("BLOCK_M"))
        slots, tiles = (torch.from_numpy(table).to(p.device) for table in tables)
        launch = made.experts_kernel[(len(tiles) * -(-p.n // candidate.block("BLOCK_N")),)]
        arrays = (self.x, self.w, self.out, slots, tiles)
        numbers = (self.out.shape[0], len(tiles), p.n, p.k)
        return functools.partial(launch, *arrays, *numbers, **options(candidate, p))
