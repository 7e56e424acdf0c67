"""What ``gpu_table.py`` does in child processes for built-in workloads: compile candidates, check and time them."""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from candidates import Candidate

from deuteron.tuner.workloads import Problem, builtin_workload

if TYPE_CHECKING:
    from deuteron.tuner.codec import Scalar
    from deuteron.tuner.workloads.problem import LaunchPlan


@dataclass(frozen=True)
class Launches:
    """A built-in workload at one shape and dtype."""

    workload: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    device: str

    def __str__(self) -> str:
        return f"{self.workload} {self.dtype} {'x'.join(str(size) for _, size in self.sizes)}"

    @property
    def shape(self) -> dict[str, int]:
        """Sizes by the workload's dims."""
        return dict(self.sizes)

    @property
    def problem(self) -> Problem:
        """The tuner's view of it."""
        return Problem(builtin_workload(self.workload), self.shape, self.dtype)

    @property
    def operations(self) -> float:
        """By the workload's formula."""
        return self.problem.flops

    @property
    def specialised(self) -> tuple[object, ...]:
        """Compilers treat 1 and multiples of 16 apart; a constexpr may follow from the shape."""
        problem = self.problem
        plan = problem.variant(problem.spec.default_for("cuda"))
        fixed = tuple((name, plan.constexprs[name]) for name in problem.spec.constexprs)
        return (self.workload, *plan.signature.values(), *fixed)


def plan_of(candidate: Candidate, problem: Problem) -> LaunchPlan:
    """What a candidate launches; of its schedule what the workload's space has."""
    return problem.variant(config_of(candidate, problem))


def config_of(candidate: Candidate, problem: Problem) -> dict[str, Scalar]:
    """A candidate as a configuration of the workload's space."""
    given: dict[str, Any] = {**dict(candidate.blocks), **candidate.schedule}
    return {name: given[name] for name in problem.spec.space_for("cuda").names}


def candidate_of(config: Mapping[str, Any]) -> Candidate:
    """A configuration as a candidate; warps and stages that it does not name are the default's."""
    given = dict(config)
    warps, stages = int(given.pop("num_warps", 4)), int(given.pop("num_stages", 3))
    extra = (("persistent", given.pop("persistent")),) if "persistent" in given else ()
    return Candidate("deuteron", tuple(given.items()), warps, stages, extra)


@functools.cache
def kernel(workload: str) -> Any:
    """The workload's kernel, to be launched."""
    module = importlib.import_module(f"deuteron.tuner.workloads.kernels.{workload}")
    return getattr(module, builtin_workload(workload).kernel.name)


class Compiler:
    """A service that compiles candidates into the disk cache."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        del announce

    def build(self, candidate: Candidate, launches: Launches) -> float:
        """Compile without launching; seconds."""
        begin, problem = time.perf_counter(), launches.problem
        plan = plan_of(candidate, problem)
        kinds = [
            f"{plan.signature[name]}@{launches.device}" if name not in problem.scalars else problem.scalars[name]
            for name in problem.run_time_arguments
        ]
        for grid in candidate.grids:
            kernel(launches.workload).warmup(*kinds, grid=grid, **plan.constexprs, **plan.schedule)
        return time.perf_counter() - begin


def make_bench(announce: Callable[[str], None]) -> object:
    """A service that holds one shape of a workload at a time. In a function because it needs torch."""
    import torch
    from bench import Bench
    from timing import Call

    class WorkloadBench(Bench):
        tolerance = 1e-2

        def draw(self, problem: Launches) -> dict[str, Callable[[], Call]]:
            """N(0, 1) inputs, and the result in f32; no library takes part."""
            dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
            self.problem, device = problem.problem, problem.device
            self.arrays = {}
            for tensor in self.problem.spec.tensors:
                shape, dtype = self.problem.tensor_shape(tensor), dtypes[self.problem.tensor_dtype(tensor)]
                self.arrays[tensor.name] = torch.randn(shape, device=device).to(dtype)
            self.name = problem.workload
            if self.name == "matmul":
                self.outputs = [self.arrays["c_ptr"]]
                self.wanted = [self.arrays["a_ptr"].float() @ self.arrays["b_ptr"].float()]
            else:
                self.outputs = [self.arrays["output_ptr"]]
                self.wanted = [torch.softmax(self.arrays["input_ptr"].float(), 1)]
            return {}

        def launch(self, candidate: Candidate) -> Call:
            """The kernel on the problem's arrays."""
            plan = plan_of(candidate, self.problem)
            arguments = [
                self.arrays[name] if name in self.arrays else self.problem.scalars[name]
                for name in self.problem.run_time_arguments
            ]
            start = kernel(self.name)[plan.grid]
            return functools.partial(start, *arguments, **plan.constexprs, **plan.schedule)

    return WorkloadBench(announce)


def make_attention_bench(announce: Callable[[str], None]) -> object:
    """As ``attention_work.Attentions`` without the libraries."""
    from attention_work import Attention, Attentions
    from timing import Call

    class PlainAttentions(Attentions):
        def draw(self, problem: Attention) -> dict[str, Callable[[], Call]]:
            super().draw(problem)
            return {}

    return PlainAttentions(announce)
