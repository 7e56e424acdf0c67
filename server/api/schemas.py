"""Bodies of requests and answers, with what the OpenAPI page says about them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, WithJsonSchema
from pydantic_core import PydanticCustomError

from deuteron.tuner import BUILTINS
from deuteron.tuner.workloads.schema import workload_schema

from ..store import SCOPES


def _is_number(value: object) -> object:
    """Pydantic would read `"5"` and `true` as 5, and a schema that says `integer` promises that nobody does."""
    if isinstance(value, bool | str):
        raise PydanticCustomError("not_a_number", "Input should be a number")
    return value


# 5.0 is an integer for JSON Schema, so pydantic's own strict mode, which refuses it, is too strict.
# Last of the annotations: pydantic describes limits only where they stand beside the type.
_JSON_NUMBER = BeforeValidator(_is_number)
Integer = Annotated[int, _JSON_NUMBER]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1), _JSON_NUMBER]

# Documents that the tuner defines and validates; here they are passed on.
Document = dict[str, Any]
Text = Annotated[str, Field(max_length=200)]
# What is before the slash is the worker's name, a segment of addresses: not empty, and neither "." nor "..".
WorkerProcess = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^/]*[^/.][^/]*(/[^/]*)?$",
        description="`device@host/pid`.",
        examples=["cuda:0@gpu-a/4711"],
    ),
]


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


class Body(BaseModel):
    """A request body: an unknown field is a spelling mistake, so it is refused."""

    model_config = ConfigDict(extra="forbid")


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
    trials: Annotated[int, Field(ge=1, le=2**31 - 1), _JSON_NUMBER] | None = Field(
        None, description="Trials per shape and dtype.", examples=[50]
    )
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False), _JSON_NUMBER] | None = Field(
        None,
        description="Seconds for the whole job, divided evenly among shapes and dtypes, from when a worker begins it. "
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
        description="Name of a built-in workload (vector_add, softmax, layer_norm, matmul), or a workload with a "
        "kernel of your own."
    )
    shapes: list[dict[str, Integer]] | None = Field(
        None,
        min_length=1,
        description="Dimensions, one object a shape; the workload's suite if left out.",
    )
    dtypes: list[str] | None = Field(
        None, min_length=1, description="For example f32, bf16; the workload's first if left out."
    )
    device: str = Field("cpu", description="cpu, cuda (any GPU), or cuda:N.")
    budget: BudgetBody = Field(
        BudgetBody(trials=50, seconds=None, settle=False), description="When to stop; 50 trials if left out."
    )
    strategy: str | None = Field(None, description="Search strategy; the tuner's default if left out.")
    seed: Seed = Field(0, description="The same seed makes the strategy propose the same.")


class ValidateBody(Body):
    """A job without its budget."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [SCALE_JOB]})

    workload: Workload = Field(description="As in a job.")
    shapes: list[dict[str, Integer]] | None = Field(None, min_length=1, description="As in a job.")
    dtypes: list[str] | None = Field(None, min_length=1, description="As in a job.")
    device: str = Field("cpu", description="cpu, cuda (any GPU), or cuda:N.", pattern=r"^(cpu|cuda(:\d{1,4})?)$")
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
        description="The most that will be screened, 0 when the budget is the whole space; a job may need fewer."
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


class LookupBody(Body):
    kernel: str = Field(description="Kernel hash, or a name (of a built-in workload or the newest kernel so called).")
    device: str = Field(description="Device key as in GET /v1/devices, or a device name such as `NVIDIA H200`.")
    shape: dict[str, Integer]
    dtype: str = "f32"
    toolchain: dict[str, str] | None = Field(
        None, description="What you compile with; records of others are answered as unverified."
    )


class LookupBatchBody(Body):
    lookups: list[LookupBody] = Field(min_length=1, max_length=1000)
    strict: StrictBool = Field(False, description="404 unless every answer is exact.")


class ToolchainDifference(BaseModel):
    name: str = Field(description="Part of the toolchain, such as `compiler` or `driver`.")
    recorded: str | None = Field(description="What the record was measured with; null where it does not say.")
    current: str | None = Field(description="What was given in the question; null where it does not say.")


class LookupAnswer(BaseModel):
    match: Literal["exact", "predicted", "nearest_shape", "other_toolchain", "default"]
    reason: str = Field(description="Why this answer, in words.")
    config: Document = Field(
        description="The configuration to launch with; empty for `default`: use the kernel's own defaults."
    )
    record: Document | None = Field(
        description="The ConfigRecord it comes from, with provenance; null for a prediction or a default."
    )
    toolchain_differences: list[ToolchainDifference] | None = Field(
        description="Where the toolchain of the record, or of the times that a prediction rests on, is not the given "
        "one; null if none was given or there is no record."
    )
    expected_loss: float | None = Field(
        None, description="Of a prediction: how much slower than the best is expected, 0.03 for 3 %; null of records."
    )
    upstream: Literal["reached", "unreachable", "refused"] | None = Field(
        None, description="Whether the upstream was, where it was needed; null without one, and for exact answers."
    )


class LookupBatchAnswer(BaseModel):
    answers: list[LookupAnswer]


class ReasonBody(Body):
    reason: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="Why, for who reads the history.", examples=["measured while the fan was broken"]
    )


class ConfigAnswer(BaseModel):
    id: str
    pinned: bool
    job_id: str | None = Field(description="The job that found it; null if it was brought from elsewhere.")
    record: Document
    links: dict[str, str]


class HistoryEntry(BaseModel):
    config_id: str
    action: Literal["stored", "kept", "withdrawn", "pinned", "unpinned"] = Field(
        description="`stored`: it became the answer; `kept`: it arrived and another stayed the answer."
    )
    who: str = Field(description="The worker that measured it, or the token of who changed it; empty if not known.")
    reason: str
    at: datetime
    job_id: str | None
    time_ns: Document = Field(description="Median and interval.")
    toolchain: dict[str, str]
    config: Document


class HistoryAnswer(BaseModel):
    history: list[HistoryEntry] = Field(description="Of all records under the same key, oldest first.")


class WithdrawAnswer(BaseModel):
    withdrawn: str
    now: ConfigAnswer | None = Field(description="What is stored under the key now; null for nothing.")


class ConfigPage(BaseModel):
    configs: list[Document]
    next: str | None


class PiecesAnswer(BaseModel):
    sha256: str = Field(description="Of the bundle.")
    sizes: list[int] = Field(description="Bytes of each piece, in order; together the bundle.")
    digests: list[str] = Field(description="The first 32 hexadecimal digits of the sha256 of each.")


class DeviceAnswer(BaseModel):
    key: str
    kind: str
    name: str
    worker: str
    fingerprint: Document
    first_seen: datetime
    last_seen: datetime


class DeviceList(BaseModel):
    devices: list[DeviceAnswer]


class WorkerAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "cuda:0@gpu-a",
                    "host": "gpu-a",
                    "device": "cuda:0",
                    "devices": ["cuda/h200/cc90/sm132/140gib/700w"],
                    "state": "draining",
                    "draining": True,
                    "drained_at": "2026-11-23T09:30:00Z",
                    "drained_by": "operator",
                    "job": "8d0ce8f2-5c6a-4b0e-9b57-b4b3f6f2a1de",
                    "first_seen": "2026-11-20T08:00:00Z",
                    "last_seen": "2026-11-23T09:30:04Z",
                    "toolchain": {"deuteron": "0.1.0", "target": "cuda:90a", "driver": "580.95"},
                }
            ]
        }
    )

    name: str = Field(description="`device@host`: no restart of the worker changes it.")
    host: str
    device: str = Field(description="As the host calls it, such as `cuda:0`.")
    devices: list[str] = Field(description="Keys as in GET /v1/devices; empty until the worker has announced them.")
    state: Literal["idle", "running", "draining", "away"] = Field(
        description="`draining`: it gets no other job, and finishes `job` if it has one; `away`: nobody sees it."
    )
    draining: bool = Field(description="Whether it was drained; a worker that is away keeps that.")
    drained_at: datetime | None
    drained_by: str | None = Field(description="The token of who drained it.")
    job: str | None = Field(description="Id of the job that it has.")
    first_seen: datetime
    last_seen: datetime = Field(
        description="When the server that dispatches saw it last; at most 10 s old while it is."
    )
    toolchain: dict[str, str] | None = Field(description="What it compiles with, if it said so.")


class WorkerList(BaseModel):
    workers: list[WorkerAnswer]


Scope = Literal["read", "submit", "worker", "admin"]


class TokenBody(Body):
    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: list[Scope] = Field(min_length=1, examples=[list(SCOPES[:2])])
    expires_in_seconds: Annotated[int, Field(ge=1, le=10 * 365 * 86400), _JSON_NUMBER] | None = Field(
        None, description="Lifetime; null never expires."
    )


class TokenAnswer(BaseModel):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenAnswer(TokenAnswer):
    token: str = Field(description="The secret. It is shown only here.")


class TokenList(BaseModel):
    tokens: list[TokenAnswer]


class ClaimBody(Body):
    claim_id: Annotated[str, Field(pattern=r"^[\w-]+\.[\w-]+$", max_length=80)]
    worker: WorkerProcess


class FinishedTrial(BaseModel):
    shape: dict[str, int]
    dtype: str
    trial: Document


class SearchesAnswer(BaseModel):
    searches: list[Document] = Field(
        description="SearchLogs: kernel_name, kernel_hash, device (key), shape, dtype, and `known`: configurations "
        "with their times in ns, fastest first."
    )


class ClaimAnswer(BaseModel):
    attempt: int
    lease_seconds: float
    spec: Document
    finished: list[FinishedTrial]
    known: list[Document] = Field(description="SearchLogs of earlier searches of the kernel, to start from.")


class DeliveryBody(Body):
    sequence: Annotated[int, Field(ge=1, le=2**31 - 1), _JSON_NUMBER]
    event: Document


class EventsBody(Body):
    claim_id: Annotated[str, Field(max_length=80)]
    events: list[DeliveryBody] = Field(max_length=1000)


class HeartbeatBody(Body):
    claim_id: Annotated[str, Field(max_length=80)]


class ReceiptAnswer(BaseModel):
    proceed: bool = Field(description="False: another run has the job, or it has ended. Stop.")
    cancel: bool = Field(description="True: somebody asked for the job's end.")


class AnnounceBody(Body):
    worker: WorkerProcess
    devices: list[Document] = Field(max_length=64)
    toolchain: dict[Text, Text] | None = Field(None, max_length=64, description="What it compiles with.")


class AnnounceAnswer(BaseModel):
    keys: list[str]
