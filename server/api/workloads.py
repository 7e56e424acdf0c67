"""/v1/workloads: the built-in ones, and whether one of your own would run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner import BUILTINS, JobSpec, builtin_workload
from deuteron.tuner.errors import Fault, WorkloadError
from deuteron.tuner.workloads.validation import fault_of, faults_of

from ..auth import Reader, Submitter
from ..checking import compile_faults, compile_for, target_of
from ..context import ContextDep, ServiceContext
from ..problems import HttpProblem, fault_list
from ..submission import read_spec
from .routes import make_router
from .schemas.common import Document
from .schemas.jobs import CompiledAnswer, FaultAnswer, ValidateAnswer, ValidateBody, WorkloadList

router = make_router("workloads", "/v1/workloads")


@router.get("", summary="List the built-in workloads")
def list_workloads(_reader: Reader) -> WorkloadList:
    """Names that a job may give as its `workload`."""
    return WorkloadList(workloads=list(BUILTINS))


@router.get("/{name}", summary="Read a built-in workload")
def get_workload(name: Annotated[str, Path(max_length=200)], _reader: Reader) -> Document:
    """In full, as a job may send it: a beginning for one of your own."""
    if name not in BUILTINS:
        raise HttpProblem(
            404,
            "workload-not-found",
            f"there is no built-in workload {name!r}",
            hint=f"there are {', '.join(BUILTINS)}",
        )
    return builtin_workload(name).to_json()


@router.post("/validate", summary="Try a workload without a job")
def validate(body: ValidateBody, context: ContextDep, _submitter: Submitter) -> ValidateAnswer:
    """Reads the workload, parses its kernel, evaluates every expression at every shape, and compiles the default and
    one random configuration for the first shape. Nothing is stored, run or measured.

    `errors` has every field that is wrong, with the reason and what would do; `valid` is true when there is none. A job
    with the same fields is refused for the same errors."""
    document = body.model_dump(mode="json", exclude_none=True, exclude={"compile"})
    try:
        spec = read_spec(context, document)
    except WorkloadError as error:
        return _invalid(error.faults or [fault_of(error, "workload")])
    except DeuteronError as error:
        return _invalid([fault_of(error, "workload")])
    return _checked(context, spec, compile_too=body.compile)


def _checked(context: ServiceContext, spec: JobSpec, *, compile_too: bool) -> ValidateAnswer:
    target = target_of(context, spec.device)
    problems = list(spec.problems())
    faults = faults_of(problems, target.properties)
    if faults:
        return _invalid(faults)
    space = problems[0].full_space(target.properties)
    compiled = compile_for(spec, target, others=1) if compile_too else []
    errors = compile_faults(compiled)
    return ValidateAnswer(
        valid=not errors,
        errors=_answers(errors),
        kernel_hash=problems[0].source.hash,
        target=target.target,
        shapes=[dict(shape) for shape in spec.shapes],
        dtypes=list(spec.dtypes),
        default=dict(problems[0].default(space, target.properties.kind)),
        configurations=space.count(),
        compiled=[CompiledAnswer.model_validate(item.to_json()) for item in compiled],
    )


def _invalid(faults: Sequence[Fault]) -> ValidateAnswer:
    return ValidateAnswer(valid=False, errors=_answers(faults))


def _answers(faults: Sequence[Fault]) -> list[FaultAnswer]:
    return [FaultAnswer.model_validate(item) for item in fault_list(faults)]
