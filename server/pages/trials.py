"""A trial's page: its configuration, what was measured, what is known of its code, and what bounds it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fastapi import APIRouter, Response

from deuteron.tuner.measure.bounds import explain
from deuteron.tuner.measure.measurement import CodeFacts, Measurement
from deuteron.tuner.trial import Trial

from ..auth import Reader
from ..context import ContextDep
from ..store import Job, StoredTrial
from .format import optional_time, settings_text
from .html import Child, Markup, table, tag
from .layout import facts, page, pill

router = APIRouter(include_in_schema=False)


@router.get("/jobs/{job_id}/trials/{trial_id}")
def trial_page(job_id: str, trial_id: str, context: ContextDep, _reader: Reader) -> Response:
    """Everything that is known of one trial."""
    with context.store.read() as tx:
        job, stored = tx.jobs.get(job_id), tx.trials.get(job_id, trial_id)
    trial = Trial.from_json(json.loads(stored.body))
    measurement = trial.measurement
    return page(
        f"{job.kernel_name} {job.id[:8]} trial {trial.number}",
        tag("div", tag("h1", f"Trial {trial.number}"), pill(trial.status), class_="title"),
        tag("pre", trial.error, class_="error", role="alert", tabindex=0) if trial.error else None,
        facts(_identity(job, stored, trial)),
        tag("p", tag("a", "Source, IR and assembly, compiled again", href=f"{trial_id}/code", rel="nofollow")),
        tag("h2", "What bounds it"),
        tag("p", (measurement and explain(measurement)) or "Not known."),
        [tag("h2", "Measurement"), facts(_measured(measurement))] if measurement else None,
        [tag("h2", "Code"), facts(_code(measurement.code))] if measurement and measurement.code else None,
        [tag("h2", "All figures"), _figures(trial)] if trial.metrics else None,
        current="/",
    )


def _identity(job: Job, stored: StoredTrial, trial: Trial) -> Iterator[tuple[str, Child]]:
    yield "Job", tag("a", f"{job.kernel_name} {job.id[:8]}", href=f"/jobs/{job.id}")
    yield "Shape", tag("code", f"{settings_text(json.loads(stored.shape))} {stored.dtype}")
    yield "Configuration", tag("code", settings_text(trial.config))
    yield "Phase", trial.phase
    yield "Check", _check(trial)
    if trial.reason is not None:
        yield "Proposed", trial.reason
    yield "Time", optional_time(stored.median_ns)


def _check(trial: Trial) -> str:
    """What comparing the result with the reference gave."""
    if trial.reference is None:
        return "not reached" if trial.status != "ok" else "not said"
    worst = trial.metrics.get("worst_error")
    of_tolerance = "" if worst is None else f", worst error {worst:.3g} of what is tolerated"
    agrees = "differs from" if trial.status == "wrong_result" else "agrees with"
    return f"{agrees} {trial.reference}{of_tolerance}"


def _figures(trial: Trial) -> Markup:
    """Everything that compiler, check and timing gave as numbers, by their own names."""
    rows = [
        tag("tr", tag("th", tag("code", name), scope="row"), tag("td", f"{value:.6g}", class_="number"))
        for name, value in sorted(trial.metrics.items())
    ]
    return table(["Name", "Value"], rows, caption="Numbers of the trial")


def _measured(measurement: Measurement) -> Iterator[tuple[str, Child]]:
    time = measurement.time_ns
    yield "Interval", f"{optional_time(time.low)} to {optional_time(time.high)}, {time.samples} samples"
    yield "Protocol", measurement.protocol.text
    yield "Operations", f"{measurement.flop_s / 1e9:.4g} Gop/s{_of_peak(measurement.compute_share)}"
    yield "Memory", f"{measurement.byte_s / 1e9:.4g} GB/s{_of_peak(measurement.memory_share)}"
    if measurement.waves is not None and measurement.tail is not None:
        yield "Waves", f"{measurement.waves:.2f}, the device idle for {measurement.tail:.0%} of them"
    if measurement.replay_ns is not None:
        yield "In a CUDA graph", f"{optional_time(measurement.replay_ns.median)}, warm cache"
    if measurement.sm_mhz is not None:
        yield "Clock", f"{measurement.sm_mhz:.0f} MHz"


def _of_peak(share: float | None) -> str:
    return "" if share is None else f", {share:.1%} of the peak"


def _code(code: CodeFacts) -> Iterator[tuple[str, Child]]:
    known: tuple[tuple[str, object | None, str], ...] = (
        ("Programs", code.programs, ""),
        ("Threads", code.threads, " a program"),
        ("Registers", code.registers, " a thread"),
        ("Spills", code.spill_bytes, " bytes"),
        ("Shared memory", code.shared_bytes, " bytes a program"),
        ("Ring slots", code.slots, ""),
        ("Vectors", code.vector_bytes, " bytes"),
        ("Size", code.code_bytes, " bytes"),
    )
    yield from ((name, f"{value}{unit}") for name, value, unit in known if value is not None)
    if code.occupancy is not None:
        yield "Occupancy", f"{code.occupancy:.0%}, limited by {code.limiter}"
    if code.instructions is not None:
        mix = code.instructions
        counted = ((name, getattr(mix, name)) for name in mix.__struct_fields__)
        yield "Instructions", ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counted if count)
