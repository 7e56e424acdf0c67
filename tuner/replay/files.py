"""Recordings that other tuners left: which format a file has."""

from __future__ import annotations

from pathlib import Path

from ..errors import SchemaError, SpaceError
from ..input_file import read_file
from .kernel_tuner import cache_recording, t4_recording
from .ktt import ktt_recording
from .recording import Recording, RecordingError

#: Where the key that tells a format stands at the latest; what is before it are names of parameters and devices.
_HEAD_BYTES = 100_000


def read_recording(path: Path) -> Recording:
    """Read a cache or a T4 file of Kernel Tuner, or results of KTT, gzipped or not; a cache may be cut off after an
    entry. Raises :class:`RecordingError`."""
    try:
        text = read_file(path)
        head = text[:_HEAD_BYTES]
        if b'"results"' in head:
            return t4_recording(text, path)
        return ktt_recording(text, path) if b'"Metadata"' in head else cache_recording(text, path)
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from None
    except (SpaceError, RecordingError) as error:
        raise RecordingError(f"{path}: {error.message}", hint=error.hint) from None
    except (SchemaError, KeyError) as error:
        raise RecordingError(
            f"{path}: not a file of Kernel Tuner or KTT: {error}",
            hint="expected the keys tune_params_keys, tune_params and cache, a list of results (T4), or Metadata and "
            "Results (KTT)",
        ) from None
