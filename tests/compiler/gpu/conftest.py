"""Kernels from source text, up to the GPU stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.gpu.memory.scratch import GpuFunction
from deuteron.compiler.gpu.verify import verify_gpu
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target
from deuteron.compiler.tile.passes import optimize


@pytest.fixture(scope="session")
def to_gpu() -> Callable[..., GpuFunction]:
    """``to_gpu(text, signature, constexprs, warps, target)``: the verified GPU function of a kernel."""

    def make(
        text: str,
        signature: Mapping[str, str],
        constexprs: Mapping[str, object] | None = None,
        warps: int = 4,
        target: str = "cuda:90a",
        num_stages: int = 3,
        persistent: bool | None = None,
        maxnreg: int | None = None,
        denied: frozenset[Guard] = frozenset(),
    ) -> GpuFunction:
        name = text.split("def ", 1)[1].split("(", 1)[0]
        header = "import deuteron as triton\nimport deuteron.language as tl\n\n@triton.jit\n"
        source = KernelSource.from_text(header + text.lstrip(), name)
        function = optimize(lower(source, signature, constexprs or {}))
        schedule = Schedule(num_warps=warps, num_stages=num_stages, persistent=persistent, maxnreg=maxnreg)
        return verify_gpu(lower_to_gpu(function, Target.parse(target), schedule, denied))

    return make
