"""What ``attention.py`` does in child processes: compile candidates ahead, check and time them on one device."""

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
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

_TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "fp8": torch.float8_e4m3fn}
_DEUTERON = {"bf16": "bf16", "f16": "f16", "fp8": "f8e4m3"}
_LIBRARIES = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION}


@dataclass(frozen=True)
class Attention:
    """Attention of ``batch * heads`` heads of ``length`` rows; fp8 (e4m3) inputs give a bf16 result."""

    batch: int
    heads: int
    length: int
    dims: int
    causal: bool
    backward: bool
    dtype: str
    device: str

    def __str__(self) -> str:
        shape = f"{self.batch}x{self.heads}x{self.length}x{self.dims}"
        return f"{'bwd' if self.backward else 'fwd'} {'causal ' * self.causal}{self.dtype} {shape}"

    @property
    def operations(self) -> float:
        """4 B H N^2 D forward and 2.5 times that backward, as the papers count; half of it if causal."""
        whole = 4.0 * self.batch * self.heads * self.length**2 * self.dims
        return whole * (2.5 if self.backward else 1.0) * (0.5 if self.causal else 1.0)

    @property
    def specialised(self) -> tuple[object, ...]:
        """Compilers treat 1 and multiples of 16 apart."""
        return (self.dtype, self.dims, self.causal, self.backward, self.length == 1 or self.length % 16 == 0)

    @property
    def result(self) -> str:
        """Dtype of the output."""
        return "bf16" if self.dtype == "fp8" else self.dtype


def options(candidate: Candidate, problem: Attention) -> tuple[dict[str, object], ...]:
    """Block sizes and schedule of the forward kernel, or of the two backward ones: dk and dv hold KEYS, dq holds
    QUERIES, both walk in steps of STEP."""
    if not problem.backward:
        return ({**dict(candidate.blocks), **candidate.schedule},)
    keys, queries, step = (candidate.block(n) for n in ("KEYS", "QUERIES", "STEP"))
    dkdv = {"BLOCK_M": step, "BLOCK_N": keys, **candidate.schedule}
    return (dkdv, {"BLOCK_M": queries, "BLOCK_N": step, **candidate.schedule})


class Compiler:
    """A service that compiles candidates into the disk caches of both compilers."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        del announce

    def build(self, candidate: Candidate, problem: Attention) -> float:
        """Compile without launching; seconds."""
        begin = time.perf_counter()
        module, p = load_kernels("attention", candidate.package), problem
        data, result, f32 = (self._pointer(candidate.package, p, d) for d in (p.dtype, p.result, "f32"))
        scale = p.dims**-0.5
        chosen = options(candidate, p)
        for grid in candidate.grids:
            constants = {"HEAD": p.dims, "CAUSAL": p.causal, "grid": grid}
            if not p.backward:
                kinds = [data, data, data, result, f32]
                module.attention_forward.warmup(*kinds, p.length, scale, **constants, **chosen[0])
            else:
                kinds = [data, data, data, result, f32, f32]
                rest = (p.length, scale, scale)
                module.attention_dkdv.warmup(*kinds, result, result, *rest, **constants, **chosen[0])
                module.attention_dq.warmup(*kinds, result, *rest, **constants, **chosen[1])
        return time.perf_counter() - begin

    def _pointer(self, package: str, problem: Attention, dtype: str) -> object:
        if package == "triton":
            return _TORCH.get(dtype, torch.float32)
        return f"*{_DEUTERON.get(dtype, dtype)}:16@{problem.device}"


class Attentions(Bench):
    """A service for one attention at a time."""

    def draw(self, problem: Attention) -> dict[str, Callable[[], Call]]:
        """Inputs, reference in f32 head by head, and the libraries; in fp8 these run the same numbers in bf16."""
        p = self.attention = problem
        shape = (p.batch, p.heads, p.length, p.dims)
        narrow, wide = _TORCH[p.dtype], _TORCH[p.result]
        # fp8 rounds the probabilities to four bits; the gradients pass through several roundings of theirs.
        self.tolerance = 8e-2 if p.dtype == "fp8" else 2e-2 if p.backward else 1e-2
        self.q, self.k, self.v = (torch.randn(shape, device=p.device).to(narrow) for _ in range(3))
        self.d_out = torch.randn(shape, device=p.device).to(wide)
        outputs, self.lse = self._reference()
        self.out = outputs[0].to(wide)
        self.wanted = outputs[1:] if p.backward else outputs[:1]
        self.outputs = [torch.empty(shape, device=p.device, dtype=wide) for _ in self.wanted]
        return {name: functools.partial(self._library, name) for name in _LIBRARIES}

    def _reference(self) -> tuple[list[torch.Tensor], torch.Tensor]:
        """out, dq, dk, dv and the base-two logarithms of the rows' sums, one head at a time to save memory."""
        p = self.attention
        leaves = [x.float() for x in (self.q, self.k, self.v)]
        found = [torch.empty_like(leaves[0]) for _ in range(4)]
        lse = torch.empty(p.batch * p.heads, p.length, device=p.device)
        visible = torch.ones(p.length, p.length, dtype=torch.bool, device=p.device).tril()
        for i in range(p.batch * p.heads):
            at = divmod(i, p.heads)
            q, k, v = (x[at].requires_grad_() for x in leaves)
            scores = q @ k.T * p.dims**-0.5
            if p.causal:
                scores = scores.masked_fill(~visible, float("-inf"))
            out = torch.softmax(scores, 1) @ v
            lse[i] = torch.logsumexp(scores.detach(), 1) * 1.4426950408889634
            found[0][at] = out.detach()
            if p.backward:
                gradients = torch.autograd.grad(out, (q, k, v), self.d_out[at].float())
                for whole, gradient in zip(found[1:], gradients, strict=True):
                    whole[at] = gradient
        return found, lse

    def _library(self, name: str) -> Call:
        p = self.attention
        inputs = [x.to(_TORCH[p.result]) for x in (self.q, self.k, self.v)]

        def forward() -> torch.Tensor:
            with sdpa_kernel(_LIBRARIES[name]):
                return functional.scaled_dot_product_attention(*inputs, is_causal=p.causal)

        if not p.backward:
            return forward
        for x in inputs:
            x.requires_grad_()
        return functools.partial(torch.autograd.grad, forward(), inputs, self.d_out, retain_graph=True)

    def launch(self, candidate: Candidate) -> Call:
        """The example's own launcher, on heads of all batches."""
        p, module = self.attention, load_kernels("attention", candidate.package)
        q, k, v, out, d_out, *results = (
            x.view(p.batch * p.heads, p.length, p.dims)
            for x in (self.q, self.k, self.v, self.out, self.d_out, *self.outputs)
        )
        chosen = options(candidate, p)
        if not p.backward:
            lse = torch.empty_like(self.lse)
            return functools.partial(module.forward, q, k, v, results[0], lse, p.causal, chosen[0])
        delta: Any = torch.empty_like(self.lse)
        arguments = (q, k, v, out, self.lse, d_out, delta, *results)
        return functools.partial(module.backward, *arguments, p.causal, *chosen)
