"""What each kernel was trained from, kept beside the predictors: no restart trains again what did not change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from deuteron.compiler.whole_file import write_whole
from deuteron.tuner.codec import Count, Document, canonical_json, decode
from deuteron.tuner.errors import SchemaError

from ..predictors import FILE_NAME as PREDICTORS

#: The file's name in the service's home.
FILE_NAME = "predictors.trained.json"

_log = logging.getLogger(__name__)


class TrainedAt(Document, frozen=True):
    """``trials``: how many screened trials of a kernel were stored when it was trained last. They are appended and
    never change, so the same number means the same trials. ``predictors``: how many came of it."""

    trials: Count
    predictors: Count


class TrainedKernels(Document, frozen=True):
    """By the kernels' hashes."""

    noun: ClassVar[str] = "memory of trainings"

    kernels: Mapping[str, TrainedAt]


class TrainingMemory:
    """The file of a home, for the one server that leads. Not safe to share between threads."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE_NAME
        there = (home / PREDICTORS).exists()
        # Whoever removes the predictors has them trained anew; what could not be trained cannot be now, either.
        self._kernels = {k: v for k, v in _read(self._path).kernels.items() if there or not v.predictors}

    def is_new(self, kernel_hash: str, trials: int) -> bool:
        """Whether the kernel has other trials than it was trained from."""
        known = self._kernels.get(kernel_hash)
        return trials > 0 and (known is None or known.trials != trials)

    def note(self, kernel_hash: str, trials: int, predictors: int) -> None:
        """The kernel was trained, or could not be, when it had so many trials. Raises OSError."""
        self._kernels[kernel_hash] = TrainedAt(trials, predictors)
        write_whole(self._path, canonical_json(TrainedKernels(self._kernels).to_json()), durable=True)


def _read(path: Path) -> TrainedKernels:
    try:
        return decode(path.read_bytes(), TrainedKernels, str(path))
    except FileNotFoundError:
        pass
    except (OSError, SchemaError) as error:
        _log.warning("what was trained from is not known, so all is trained again: %s", error)
    return TrainedKernels({})
