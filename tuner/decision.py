"""From the trials of a final to the record that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .errors import JobError
from .measure.statistics import Interval, Verdict, verdict
from .records import ConfigRecord, DeviceFingerprint
from .records.record import record_id
from .trial import Trial
from .workloads import Problem


def choose(final: Sequence[Trial]) -> tuple[Trial, Interval, Verdict]:
    """The trial whose configuration is stored, its speed-up over the default (the first trial), and what the final says
    of the best challenger. A challenger is taken only if the final calls it FASTER; of several the one with the best
    ratio. So what is stored is never known to be slower than the default, nor merely lucky.

    Raises :class:`JobError` when the final is empty or the default in it has no time.
    """
    if not final or final[0].time_ns is None:
        raise JobError("the final has no measurement of the default configuration")
    default, challengers = final[0], final[1:]
    same = Interval(1.0, 1.0, 1.0, final[0].time_ns.samples)
    if not challengers:
        return default, same, "SAME"
    best = min(challengers, key=lambda trial: trial.metrics["ratio"])
    faster = [trial for trial in challengers if verdict(_ratio(trial)) == "FASTER"]
    if not faster:
        return default, same, verdict(_ratio(best))
    winner = min(faster, key=lambda trial: trial.metrics["ratio"])
    return winner, _ratio(winner).inverse(), "FASTER"


def decide(
    problem: Problem,
    final: Sequence[Trial],
    device: DeviceFingerprint,
    toolchain: Mapping[str, str],
) -> ConfigRecord:
    """The record of one shape; ``default_config`` is what the final compared with: the default configuration, or where
    that does not work on the device the first one that did. ``trials`` is left at 0 for the caller. The id follows from
    the winning trial, so a job that is resumed after its last trial gives the same record again."""
    winner, speedup, outcome = choose(final)
    base = final[0]
    if winner.time_ns is None or base.time_ns is None:
        raise JobError("the final has no measurement of the chosen configuration")
    spec = problem.spec
    dtype_argument = next((t.name for t in spec.tensors if t.dtype == "$dtype"), None)
    return ConfigRecord(
        id=record_id(winner.id),
        kernel_name=spec.kernel.name,
        kernel_hash=problem.source.hash,
        device=device,
        shape=dict(problem.dims),
        dtype=problem.dtype,
        toolchain=dict(toolchain),
        config=dict(winner.config),
        default_config=dict(base.config),
        time_ns=winner.time_ns,
        default_time_ns=base.time_ns,
        speedup=speedup,
        verdict=outcome,
        trials=0,
        checked=winner.reference is not None,
        dims_from_arguments=dict(spec.dims_from_arguments),
        dtype_argument=dtype_argument,
        created_at=winner.started_at,
    )


def _ratio(trial: Trial) -> Interval:
    """The paired ratio to the default that a race or final trial carries."""
    metrics = trial.metrics
    return Interval(metrics["ratio"], metrics["ratio_low"], metrics["ratio_high"], int(metrics["ratio_pairs"]))
