"""From the body of a submission to a stored job: validation by the rooms that own the parts."""

from __future__ import annotations

import ast
import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from deuteron.compiler import KernelSource
from deuteron.compiler.errors import DeviceError
from deuteron.tuner import JobSpec, shape_key
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.strategies import known_strategy

from .checking import check_job, refuse_faults
from .dispatch.resources import resources_for
from .fingerprints import fingerprints
from .models import MOST_SHAPE_KEY
from .problems import HttpProblem
from .store import Job, KeyIsTaken, NewJob, StoredKernel

if TYPE_CHECKING:
    from .api.schemas.jobs import JobBody
    from .context import ServiceContext


def submit(context: ServiceContext, body: JobBody, *, owner: str, idempotency_key: str | None) -> Job:
    """Store a job, or find the one that this key made.

    Raises:
        DeuteronError: the workload, a shape, the space, the kernel or the device is not valid.
        Conflict: the key was used with another body.
        HttpProblem: 422, the job is larger than this service accepts.
    """
    document = body.model_dump(mode="json", exclude_none=True)
    known_as = fingerprints(body)
    if idempotency_key is not None:
        # Before validation: a repeat must find its job even if the service has become stricter since.
        with context.store.read() as tx:
            known = tx.idempotency.find(owner, idempotency_key, *known_as)
            if known is not None:
                return tx.jobs.get(known)
    spec = read_spec(context, document)
    known_strategy(spec.strategy)
    _check_size(context, spec)
    _check_device(context, spec.device)
    refuse_faults(check_job(context, spec))
    text = spec.workload.kernel
    source = KernelSource.from_text(text.source, text.name, text.filename)
    to_store = kernel_to_store(source, text.source, text.filename)
    brought = _brings_kernel(document)
    try:
        return _store_job(context, spec, to_store, brought, owner, idempotency_key, known_as)
    except KeyIsTaken:  # the same request reached another server
        return _store_job(context, spec, to_store, brought, owner, idempotency_key, known_as)


def _store_job(
    context: ServiceContext,
    spec: JobSpec,
    to_store: StoredKernel,
    brought: bool,
    owner: str,
    idempotency_key: str | None,
    known_as: tuple[str, ...],
) -> Job:
    with context.store.write() as tx:
        if idempotency_key is not None:
            known = tx.idempotency.find(owner, idempotency_key, *known_as)
            if known is not None:
                return tx.jobs.get(known)
        kernel = tx.kernels.add(to_store) if brought else tx.kernels.keep(to_store)
        job = tx.jobs.add(
            NewJob(
                id=str(uuid.uuid4()),
                kernel_name=kernel.name,
                kernel_hash=kernel.hash,
                device=spec.device,
                spec=json.dumps(_within_trials(spec, context.settings.max_trials).to_json()),
                trials_total=_trials_total(spec),
            )
        )
        if idempotency_key is not None:
            tx.idempotency.add(owner, idempotency_key, known_as[0], job.id)
    context.metrics.count("jobs_submitted", device=spec.device)
    return job


def _brings_kernel(document: dict[str, object]) -> bool:
    """Whether a submission has the text of its kernel; the others say which one is meant, of those that are there."""
    workload = document.get("workload")
    kernel = workload.get("kernel") if isinstance(workload, dict) else None
    return isinstance(kernel, dict) and "source" in kernel


def read_spec(context: ServiceContext, document: dict[str, object]) -> JobSpec:
    """A JobSpec from a submission. A workload given by name becomes the built-in one, a kernel given by its hash or
    name alone the stored text.

    Raises:
        SchemaError, WorkloadError, ...: from the tuner; the message names the field.
        NotFound: no such kernel is stored.
        HttpProblem: 404, no kernel of that name is stored.
    """
    workload = document.get("workload")
    if isinstance(workload, str):
        document = {**document, "workload": {"builtin": workload}}
    elif isinstance(workload, dict) and isinstance(kernel := workload.get("kernel"), dict) and "source" not in kernel:
        document = {**document, "workload": {**workload, "kernel": _stored_kernel(context, kernel)}}
    return JobSpec.from_json(document)


def _stored_kernel(context: ServiceContext, named: dict[str, object]) -> dict[str, object]:
    """The text of a stored kernel: ``{"hash": ...}``, or ``{"name": ...}`` for the one that was stored
    last under that name."""
    by_hash, name = named.get("hash"), named.get("name")
    with context.store.read() as tx:
        if isinstance(by_hash, str):
            found = tx.kernels.get(by_hash)
        elif isinstance(name, str):
            newest = tx.kernels.newest_named(name)
            if newest is None:
                raise HttpProblem(
                    404,
                    "kernel-not-found",
                    f"workload.kernel: no kernel {name!r} is stored, and the field 'source' is missing",
                    hint="give its text as source, or POST it to /v1/kernels first",
                )
            found = newest
        else:
            raise SchemaError(
                "workload.kernel: the field 'source' is missing", hint="the text, or the hash of a stored kernel"
            )
    return {"name": found.name, "source": found.text, "filename": found.filename}


def kernel_to_store(source: KernelSource, text: str, filename: str) -> StoredKernel:
    """The kernel under the hash that the compiler computes of it. That takes a while for a long text: do it before a
    transaction that writes, which others wait for."""
    arguments = [
        {
            "name": argument.name,
            "constexpr": argument.constexpr,
            "default": ast.unparse(argument.default) if argument.default is not None else None,
        }
        for argument in source.arguments
    ]
    return StoredKernel(source.hash, source.name, filename, text, json.dumps(arguments), datetime.now(UTC))


def _check_size(context: ServiceContext, spec: JobSpec) -> None:
    settings = context.settings
    pairs = len(spec.shapes) * len(spec.dtypes)
    if pairs > settings.max_shapes:
        raise HttpProblem(
            422,
            "job-too-large",
            f"{len(spec.shapes)} shapes times {len(spec.dtypes)} dtypes are {pairs} searches",
            hint=f"at most {settings.max_shapes} in one job; split it",
        )
    longest = max((shape_key(shape) for shape in spec.shapes), key=len)
    if len(longest) > MOST_SHAPE_KEY:
        raise HttpProblem(
            422,
            "job-too-large",
            f"the shape {longest[:40]}... has {len(longest)} characters",
            hint=f"at most {MOST_SHAPE_KEY}: fewer dims, or shorter names",
        )
    trials = _trials_total(spec) or pairs  # the default of each is always tried
    if trials > settings.max_trials:
        raise HttpProblem(
            422,
            "job-too-large",
            f"the budget allows {trials} trials",
            hint=f"at most {settings.max_trials}; lower budget.trials or split the job",
        )


def _check_device(context: ServiceContext, device: str) -> None:
    needed = resources_for(device)
    present = context.dispatcher.devices()
    if present is None:
        return
    if device not in present and not (device == "cuda" and any("cuda" in name for name in present)):
        raise DeviceError(
            f"device {device!r} is not present on this service ({', '.join(sorted(needed))} needed)",
            hint=f"present: {', '.join(present)}",
        )


def _within_trials(spec: JobSpec, most: int) -> JobSpec:
    """A job that leaves its trials out would search whole spaces, which may have no end: it gets what jobs may have."""
    if spec.budget.trials is not None:
        return spec
    each = most // (len(spec.shapes) * len(spec.dtypes))
    return replace(spec, budget=replace(spec.budget, trials=each))


def _trials_total(spec: JobSpec) -> int:
    """The most that will be screened, 0 where the job does not say."""
    return (spec.budget.trials or 0) * len(spec.shapes) * len(spec.dtypes)
