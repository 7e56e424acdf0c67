"""What the database knows of a kernel's earlier searches, for those that start from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from deuteron.tuner import ConfigRecord
from deuteron.tuner.experience import KnownConfig, SearchLog, logs_of_records
from deuteron.tuner.experience.search_log import MOST_CONFIGS, MOST_LOGS

from .store import FoundTrial, Transaction


def known_searches(
    tx: Transaction, kernel: str, *, limit: int = MOST_LOGS, without: str | None = None
) -> list[SearchLog]:
    """Searches of the kernel of this name or hash, newest first: those whose trials are stored, then records without.

    ``without``: a job whose trials are left out. At most ``limit``.
    """
    stored = tx.configs.of_kernel(kernel, limit=limit)
    records = [ConfigRecord.from_json(json.loads(config.body)) for config in stored]
    trials = tx.trials.of_kernel(kernel, without=without)
    # Of the history, which keeps what others have replaced.
    keys = tx.config_history.toolchains_of({trial.job_id for trial in trials})
    toolchains = {job_id: json.loads(key) for job_id, key in keys.items()}
    logs = _logs(trials, toolchains)[:limit]
    places = {_place(log) for log in logs}
    alone = [log for log in logs_of_records(records) if _place(log) not in places]
    return [*logs, *alone][:limit]


def _logs(trials: Iterable[FoundTrial], toolchains: Mapping[str, Mapping[str, str]]) -> list[SearchLog]:
    """A log for each job, shape and dtype; ``toolchains`` by job."""
    tasks: dict[tuple[str, str, str], list[FoundTrial]] = {}
    for trial in trials:
        tasks.setdefault((trial.job_id, trial.shape, trial.dtype), []).append(trial)
    logs = (_log(found, toolchains.get(found[0].job_id, {})) for found in tasks.values())
    return [log for log in logs if log is not None]


def _log(found: list[FoundTrial], toolchain: Mapping[str, str]) -> SearchLog | None:
    """The log of one task; None where a worker reported what no search can have, such as a size of 0."""
    first = found[0]
    fastest = sorted(found, key=lambda trial: trial.median_ns)[:MOST_CONFIGS]
    try:
        return SearchLog(
            first.kernel_name,
            first.kernel_hash,
            first.device_key,
            json.loads(first.shape),
            first.dtype,
            tuple(KnownConfig(json.loads(trial.body)["config"], trial.median_ns) for trial in fastest),
            toolchain,
        )
    except ValueError:
        return None


def _place(log: SearchLog) -> tuple[str, str, str, str]:
    return log.kernel_hash, log.device, log.dtype, json.dumps(dict(log.shape), sort_keys=True)
