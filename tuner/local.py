"""Tuning on this machine without a server: journal, records, profile and picture in one folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from deuteron.compiler import knobs
from deuteron.compiler.runtime.devices import get_device
from deuteron.profiler.output.files import write_atomic

from .evaluators import EvaluatorFactory
from .events import TuneEvent
from .experience import SearchLog
from .failures import ShapesFailed
from .job import JobSpec
from .journal import Journal, job_digest, read_events
from .records import ConfigRecord, write_bundle
from .search_picture import FILE_NAME as PICTURE_NAME
from .search_picture import search_svg
from .search_profile import FILE_NAME as PROFILE_NAME
from .setups import measured_with, setup_of
from .strategies import check_strategy
from .study import run_job

BUNDLE_NAME = "records.bundle"


@dataclass(frozen=True)
class LocalResult:
    """What a local search left behind. ``resumed``: trials taken over from an earlier run."""

    records: list[ConfigRecord]
    folder: Path
    bundle: Path
    profile: Path
    picture: Path
    resumed: int


def default_folder(spec: JobSpec) -> Path:
    """``~/.deuteron/tune/<kernel>-<digest>``: the same job finds its own journal again."""
    name = re.sub(r"\W", "_", spec.workload.name)[:100]
    return knobs.home.get() / "tune" / f"{name}-{job_digest(spec)[:16]}"


def tune_locally(
    spec: JobSpec,
    *,
    emit: Callable[[TuneEvent], None],
    folder: Path | None = None,
    evaluator: EvaluatorFactory | None = None,
    known: Iterable[SearchLog] = (),
) -> LocalResult:
    """Run a job, or go on with it where an earlier run stopped; ``known``: earlier searches to start from.

    Raises what :func:`~.study.run_job` raises, and :class:`~.errors.JournalError`. A strategy that cannot be used is
    found before the folder is made. Where some shapes fail, the bundle has the records of the others.
    """
    check_strategy(spec.strategy)
    folder = folder or default_folder(spec)
    logs = list(known)
    with Journal(folder, spec) as journal:

        def record_and_emit(event: TuneEvent) -> None:
            journal.append(event)
            emit(event)

        def result(records: list[ConfigRecord]) -> LocalResult:
            resumed = len(measured_with(setup_of(get_device(spec.device)), journal.trials))
            bundle, picture = folder / BUNDLE_NAME, folder / PICTURE_NAME
            write_bundle(bundle, records)
            write_atomic(picture, search_svg(read_events(journal.path)).encode())
            return LocalResult(records, folder, bundle, folder / PROFILE_NAME, picture, resumed)

        try:
            records = run_job(
                spec,
                emit=record_and_emit,
                finished=journal.trials,
                workdir=folder,
                evaluator=evaluator,
                known=lambda place: logs,
            )
        except ShapesFailed as failed:
            if failed.records:
                result(list(failed.records))
            raise
        return result(records)
