"""The tuner: spaces, strategies, honest measurement, and records of the best configurations.

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .events import TuneEvent as TuneEvent
    from .events import event_from_json as event_from_json
    from .example import Workload as Workload
    from .expression import Expression as Expression
    from .job import Budget as Budget
    from .job import JobSpec as JobSpec
    from .job import parse_shape as parse_shape
    from .job import shape_key as shape_key
    from .local import tune_locally as tune_locally
    from .measure.statistics import Interval as Interval
    from .progress import progress_view as progress_view
    from .progress import summary_rows as summary_rows
    from .progress import summary_table as summary_table
    from .progress import summary_text as summary_text
    from .records import Answer as Answer
    from .records import Bundle as Bundle
    from .records import ConfigRecord as ConfigRecord
    from .records import DeviceFingerprint as DeviceFingerprint
    from .records import RecordIndex as RecordIndex
    from .records import canonical_name as canonical_name
    from .records import current_toolchain as current_toolchain
    from .records import encode_record as encode_record
    from .records import lookup as lookup
    from .records import read_bundle as read_bundle
    from .records import write_bundle as write_bundle
    from .space import Configuration as Configuration
    from .space import Parameter as Parameter
    from .space import Space as Space
    from .space import config_key as config_key
    from .strategies import STRATEGIES as STRATEGIES
    from .study import run_job as run_job
    from .trial import Trial as Trial
    from .tuned import TunedKernel as TunedKernel
    from .tuned import tuned as tuned
    from .user_kernel import resolve_workload as resolve_workload
    from .workloads import BUILTINS as BUILTINS
    from .workloads import Problem as Problem
    from .workloads import WorkloadSpec as WorkloadSpec
    from .workloads import builtin_workload as builtin_workload

_HOMES = {
    "events": "TuneEvent event_from_json",
    "example": "Workload",
    "expression": "Expression",
    "job": "Budget JobSpec parse_shape shape_key",
    "local": "tune_locally",
    "measure.statistics": "Interval",
    "progress": "progress_view summary_rows summary_table summary_text",
    "records": "Answer Bundle ConfigRecord DeviceFingerprint RecordIndex canonical_name current_toolchain "
    "encode_record lookup read_bundle write_bundle",
    "space": "Configuration Parameter Space config_key",
    "strategies": "STRATEGIES",
    "study": "run_job",
    "trial": "Trial",
    "tuned": "TunedKernel tuned",
    "user_kernel": "resolve_workload",
    "workloads": "BUILTINS Problem WorkloadSpec builtin_workload",
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_WHERE)


if not TYPE_CHECKING:  # to checkers a name is what is imported above, and others are errors

    def __getattr__(name: str) -> object:
        home = _WHERE.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
