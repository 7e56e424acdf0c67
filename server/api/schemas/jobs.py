"""Kernels, workloads and jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, WithJsonSchema

from deuteron.tuner import BUILTINS
from deuteron.tuner.job import DEFAULT_TRIALS
from deuteron.tuner.workloads.schema import workload_schema

from .common import JSON_NUMBER, Body, Document, Integer, Seed

# A name, or what the tuner's WorkloadSpec reads: its schema is made from that class.
Workload = Annotated[
    str | Document,
    WithJsonSchema({"anyOf": [{"type": "string", "enum": list(BUILTINS)}, workload_schema()]}),
]

SCALE_JOB: Document = {
    "workload": {
        "kernel": {
            "name": "scale",
            "source": "import triton\nimport triton.language as tl\n\n@triton.jit\n"
            "def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):\n"
            "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
            "    tl.store(y_ptr + i, tl.load(x_ptr + i, i < n) * factor, i < n)\n",
        },
        "dims": ["n"],
        "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
        "scalars": {"n": "n", "factor": 0.5},
        "grid": ["cdiv(n, BLOCK)"],
        "space": {"parameters": {"BLOCK": [256, 512, 1024]}, "constraints": ["BLOCK <= n"]},
        "bytes": "2 * n * element_bytes",
    },
    "shapes": [{"n": 1048576}],
    "dtypes": ["f32"],
    "device": "cpu",
}


class KernelBody(Body):
    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Name of the `@jit` function in the text.", examples=["add_kernel"]
    )
    text: str = Field(
        description="Source text. It is parsed, never executed.",
        examples=["@triton.jit\ndef add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    ..."],
    )
    filename: str = Field("kernel.py", max_length=400, description="Name to show in error messages.")


class KernelArgument(BaseModel):
    name: str
    constexpr: bool
    default: Any = None


class KernelAnswer(BaseModel):
    hash: str = Field(description="sha256 of the normalised source; the kernel's address.")
    name: str
    filename: str
    text: str
    arguments: list[KernelArgument]
    created_at: datetime


class BudgetBody(Body):
    trials: Annotated[int, Field(ge=1, le=2**31 - 1), JSON_NUMBER] | None = Field(
        None,
        description="The most configurations that are tried of each shape and dtype; left out, whole spaces, or as "
        "much of them as the service lets a job try.",
        examples=[DEFAULT_TRIALS],
    )
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False), JSON_NUMBER] | None = Field(
        None,
        description="Seconds for the whole job, divided evenly among shapes and dtypes, from when a worker begins it; "
        "left out, no limit. "
        "The trial under way, and processes, checks and least rounds of race and final, come on top.",
        examples=[60],
    )
    settle: StrictBool = Field(False, description="A shape also ends when the strategy sees nothing more to be won.")


class JobBody(Body):
    """A search: what to tune, for which shapes and dtypes, on which device, with which budget."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "workload": "softmax",
                    "shapes": [{"M": 1024, "N": 781}],
                    "dtypes": ["f32"],
                    "device": "cpu",
                    "budget": {"trials": 20, "seconds": 60},
                },
                {**SCALE_JOB, "budget": {"trials": 20, "seconds": 60}},
            ]
        },
    )

    workload: Workload = Field(
        description=f"Name of a built-in workload ({', '.join(BUILTINS)}), or a workload with a kernel of your own."
    )
    shapes: list[dict[str, Integer]] | None = Field(
        None,
        min_length=1,
        description="Dimensions, one object a shape, each tuned once; the workload's suite if left out.",
    )
    dtypes: list[str] | None = Field(
        None, min_length=1, description="For example f32, bf16; the workload's first if left out."
    )
    device: str = Field("cpu", description="cpu, cuda (any GPU), or cuda:N.")
    budget: BudgetBody = Field(
        BudgetBody(trials=DEFAULT_TRIALS, seconds=None, settle=False),
        description=f"When to stop; {DEFAULT_TRIALS} trials if it is left out as a whole.",
    )
    strategy: str | None = Field(None, description="Search strategy; the tuner's default if left out.")
    seed: Seed = Field(0, description="The same seed makes the strategy propose the same.")


class ValidateBody(Body):
    """A job without its budget."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [SCALE_JOB]})

    workload: Workload = Field(description="As in a job.")
    shapes: list[dict[str, Integer]] | None = Field(None, min_length=1, description="As in a job.")
    dtypes: list[str] | None = Field(None, min_length=1, description="As in a job.")
    device: str = Field("cpu", description="cpu, cuda (any GPU), or cuda:N.", pattern=r"^(cpu|cuda(:[0-9]{1,4})?)$")
    seed: Seed = Field(0, description="Chooses the random configuration.")
    compile: StrictBool = Field(True, description="False checks everything but the kernel's body, in milliseconds.")


class FaultAnswer(BaseModel):
    where: str = Field(description="The field, such as `workload.grid[0]`.")
    message: str
    hint: str | None = Field(default=None, description="What would do.")


class CompiledAnswer(BaseModel):
    role: Literal["default", "random"]
    config: Document
    grid: list[int]
    status: str = Field(
        description="`ok`, or how it failed: `compile_error`, `invalid`, `timeout`, `crashed`, `failed`."
    )
    error: str | None
    metrics: dict[str, float]
    seconds: float


class ValidateAnswer(BaseModel):
    valid: bool
    errors: list[FaultAnswer]
    kernel_hash: str | None = None
    target: str | None = Field(default=None, description="What it was compiled for.")
    shapes: list[dict[str, int]] = []
    dtypes: list[str] = []
    default: Document | None = Field(default=None, description="The configuration that the others have to beat.")
    configurations: int | None = Field(
        default=None, description="Size of the space at the first shape; null if too large to count."
    )
    compiled: list[CompiledAnswer] = []


class WorkloadList(BaseModel):
    workloads: list[str]


class Progress(BaseModel):
    trials: int = Field(description="Trials finished so far, races and finals included.")
    screened: int = Field(description="Configurations tried so far; the budget limits these.")
    trials_total: int = Field(
        description="The most that will be screened, 0 where the budget leaves `trials` out; a job may need fewer."
    )


class JobAnswer(BaseModel):
    id: str
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    kernel_name: str
    kernel_hash: str
    device: str
    progress: Progress
    attempts: int = Field(description="How often a worker started it.")
    worker: str | None
    cancel_requested: bool
    error: str | None
    waiting_for: str | None = Field(None, description="What a queued job waits for when no connected worker has it.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    links: dict[str, str]


class JobDetail(JobAnswer):
    spec: Document = Field(description="The JobSpec as the tuner will read it.")
    configs: list[Document] = Field(
        description="ConfigRecords that this job has found so far; what became of them later changes nothing here."
    )


class JobPage(BaseModel):
    jobs: list[JobAnswer]
    next: str | None = Field(description="Cursor of the next page, null on the last one.")


class TrialAnswer(BaseModel):
    sequence: int = Field(description="1, 2, 3 ... in order of arrival.")
    attempt: int
    dtype: str
    shape: dict[str, int]
    recorded_at: datetime
    trial: Document = Field(description="The Trial as the tuner wrote it.")
    bound: str | None = Field(
        None, description="What bounds the variant, such as `memory`, `tail` or `registers`; null where nobody knows."
    )
    explanation: str | None = Field(None, description="The same in words, with figures.")


class TrialPage(BaseModel):
    trials: list[TrialAnswer]
    next: str | None
