"""Standard kernels, and running functions on the NVPTX simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.gpu.memory.scratch import GpuFunction
from deuteron.compiler.gpu.verify import verify_gpu
from deuteron.compiler.ir import Function
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import Target
from deuteron.compiler.targets.nvptx import PtxProgram, assemble, emit_ptx, lower_to_llvm
from deuteron.compiler.tile.passes import optimize
from simulator import simulate_launch

EXAMPLES = Path(__file__).parents[3] / "examples"
Argument = np.ndarray | int | float


@dataclass(frozen=True)
class Sample:
    """A kernel with everything that compiling it takes."""

    source: KernelSource
    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    schedule: Schedule = Schedule()

    def tile(self, target: str | None = None) -> Function:
        """``target``: for kernels that ask what they are compiled for."""
        known = Target.parse(target) if target else None
        return optimize(lower(self.source, self.signature, self.constexprs, debug=self.schedule.debug, target=known))

    def gpu(self, target: str = "cuda:90a") -> GpuFunction:
        return verify_gpu(lower_to_gpu(self.tile(target), Target.parse(target), self.schedule))

    def program(self, target: str = "cuda:90a") -> PtxProgram:
        return lower_to_llvm(self.gpu(target), Target.parse(target), self.schedule)

    def for_guards(self, denied: frozenset[Guard]) -> PtxProgram:
        """The program for arguments that break the guards ``denied``."""
        target = Target.parse("cuda:90a")
        made = verify_gpu(lower_to_gpu(self.tile(), target, self.schedule, denied))
        return lower_to_llvm(made, target, self.schedule)


def _source(file: str, name: str) -> KernelSource:
    return KernelSource.from_file(EXAMPLES / file, name)


def make_matmul(
    dtype: str,
    shape: tuple[int, int, int],
    block: tuple[int, int, int],
    warps: int,
    activation: str = "",
) -> Sample:
    """The tutorial's matmul, specialised as a launch with C-ordered arrays would do it."""
    m, n, k = shape

    def integer(value: int) -> str:
        return "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"

    names = [
        "M",
        "N",
        "K",
        "stride_am",
        "stride_ak",
        "stride_bk",
        "stride_bn",
        "stride_cm",
        "stride_cn",
    ]
    values = (m, n, k, k, 1, n, 1, n, 1)
    signature = {"a_ptr": f"*{dtype}:16", "b_ptr": f"*{dtype}:16", "c_ptr": "*fp16:16"}
    signature |= {name: integer(value) for name, value in zip(names, values, strict=True)}
    blocks = dict(zip(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), block, strict=True))
    constexprs = {**blocks, "GROUP_SIZE_M": 2, "ACTIVATION": activation}
    return Sample(_source("matmul.py", "matmul_kernel"), signature, constexprs, Schedule(num_warps=warps))


def make_softmax(columns: int, warps: int) -> Sample:
    divisible = ":16" if columns % 16 == 0 else ""
    block = 1 << (columns - 1).bit_length()
    signature = {"output_ptr": "*fp32:16", "input_ptr": "*fp32:16", "n_rows": "i32"}
    signature |= dict.fromkeys(("input_row_stride", "output_row_stride", "n_cols"), f"i32{divisible}")
    constexprs = {"BLOCK_SIZE": block, "num_stages": 2}
    return Sample(_source("softmax.py", "softmax_kernel"), signature, constexprs, Schedule(num_warps=warps))


@pytest.fixture(scope="session")
def example_kernel() -> Callable[..., Sample]:
    """A kernel of an example: ``example_kernel(file, name, signature, constexprs, **schedule)``."""

    def make(
        file: str, name: str, signature: Mapping[str, str], constexprs: Mapping[str, object], **schedule: object
    ) -> Sample:
        return Sample(_source(file, name), signature, constexprs, Schedule(**schedule))

    return make


@pytest.fixture(scope="session")
def matmul() -> Callable[..., Sample]:
    return make_matmul


@pytest.fixture(scope="session")
def softmax() -> Callable[..., Sample]:
    return make_softmax


def _standard() -> dict[str, Sample]:
    pointers = dict.fromkeys(("x_ptr", "y_ptr", "output_ptr"), "*fp32:16")
    norm = dict.fromkeys(("X", "Y", "W", "B", "Mean", "Rstd"), "*fp32:16")
    return {
        "vector_add": Sample(
            _source("vector_add.py", "add_kernel"),
            {**pointers, "n_elements": "i32:16"},
            {"BLOCK_SIZE": 1024},
        ),
        "softmax": make_softmax(1024, 4),
        "softmax_wide": make_softmax(16384, 16),
        "layer_norm": Sample(
            _source("layer_norm.py", "layer_norm_fwd"),
            {**norm, "stride": "i32:16", "N": "i32:16", "eps": "fp32"},
            {"BLOCK_SIZE": 1024},
        ),
        "matmul_f16": make_matmul("fp16", (512, 512, 512), (128, 128, 32), 4, "leaky_relu"),
        "matmul_bf16": make_matmul("bf16", (512, 512, 512), (64, 64, 64), 4),
        "matmul_f32": make_matmul("fp32", (512, 512, 512), (64, 64, 32), 4),
    }


@pytest.fixture(scope="session", params=list(_standard()))
def standard_kernel(request: pytest.FixtureRequest) -> tuple[str, Sample]:
    """(name, kernel) of every program that must assemble everywhere."""
    return request.param, _standard()[request.param]


@pytest.fixture(scope="session")
def standard_kernels() -> dict[str, Sample]:
    return _standard()


def run_program(
    compiled: Callable[[frozenset[Guard]], PtxProgram], grid: tuple[int, ...], arguments: Sequence[Argument]
) -> PtxProgram:
    """Simulate with warps in rising and in falling order; both must leave the same behind."""
    compiled = cache(compiled)
    reverse = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    program = simulate_launch(compiled, grid, arguments)
    simulate_launch(compiled, grid, reverse, order=lambda count: range(count - 1, -1, -1))
    for here, there in zip(arguments, reverse, strict=True):
        if isinstance(here, np.ndarray):
            assert np.array_equal(here, there) or np.array_equal(
                here.astype(np.float64), there.astype(np.float64), equal_nan=True
            ), "the order of warps matters: a barrier is missing"
    return program


@pytest.fixture(scope="session")
def simulated() -> Callable[[Sample | PtxProgram, tuple[int, ...], Sequence[Argument]], None]:
    """Simulates a kernel: the variant for its arguments, or a program as it is."""

    def run(kernel: Sample | PtxProgram, grid: tuple[int, ...], arguments: Sequence[Argument]) -> None:
        compiled = kernel.for_guards if isinstance(kernel, Sample) else lambda denied: kernel
        run_program(compiled, grid, arguments)

    return run


@pytest.fixture(scope="session")
def run_function() -> Callable[..., PtxProgram]:
    """Lowers a tile function and simulates it on arrays, which change in place."""

    def run(
        function: Function,
        grid: tuple[int, ...],
        arguments: Sequence[Argument],
        warps: int = 4,
        target: str = "cuda:90a",
        num_stages: int = Schedule().num_stages,
        maxnreg: int | None = None,
    ) -> PtxProgram:
        schedule = Schedule(num_warps=warps, num_stages=num_stages, maxnreg=maxnreg)

        def compiled(denied: frozenset[Guard]) -> PtxProgram:
            made = verify_gpu(lower_to_gpu(function, Target.parse(target), schedule, denied))
            return lower_to_llvm(made, Target.parse(target), schedule)

        return run_program(compiled, grid, arguments)

    return run


@pytest.fixture(scope="session")
def from_text() -> Callable[..., Sample]:
    """A kernel from source text: ``from_text(text, signature, constexprs, warps)``."""

    def make(
        text: str,
        signature: Mapping[str, str],
        constexprs: Mapping[str, object] | None = None,
        warps: int = 4,
        **schedule: object,
    ) -> Sample:
        name = text.split("def ", 1)[1].split("(", 1)[0]
        header = "import deuteron as triton\nimport deuteron.language as tl\n\n@triton.jit\n"
        source = KernelSource.from_text(header + text.lstrip(), name)
        return Sample(source, signature, constexprs or {}, Schedule(num_warps=warps, **schedule))

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    """Numbers of a fixed seed."""
    return np.random.default_rng(3)


@pytest.fixture
def check_ptx() -> Callable[..., str]:
    """ptxas takes the code without spills; returns the PTX."""

    def check(sample: Sample, target: str = "cuda:90a") -> str:
        parsed = Target.parse(target)
        ptx = emit_ptx(sample.program(target), parsed)
        assert assemble(ptx, parsed, sample.schedule).spill_bytes == 0
        return ptx

    return check
