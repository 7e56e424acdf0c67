"""What lookups and bundles of the service predict from: one file, which `learning/` or `deuteron learn` wrote."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner.records import Predictor, read_bundle

#: The file's name in the service's home.
FILE_NAME = "predictors.bundle"

_log = logging.getLogger(__name__)


class Predictors:
    """The predictors of a bundle, read again when the file changes. Safe to share between threads.

    No file is no predictor. One that cannot be read is logged, and what was read before stays. Who sees first that the
    file has changed reads it, which takes 10 ms a predictor; the others go on with what was read before meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._version = 0
        self._held: tuple[Predictor, ...] = ()

    def version(self) -> int:
        """Grows when the predictors change. Looks at the file, which takes microseconds."""
        self._refresh()
        with self._lock:
            return self._version

    def of(self, kernel_hash: str | None = None, device_key: str | None = None) -> list[Predictor]:
        """Those of a kernel and of a device, None for all, in the order of their keys."""
        self._refresh()
        with self._lock:
            held = self._held
        return [p for p in held if kernel_hash in (None, p.kernel_hash) and device_key in (None, p.device.key)]

    def _refresh(self) -> None:
        if self._file_stamp() == self._stamp or not self._reading.acquire(blocking=False):
            return
        try:
            stamp = self._file_stamp()
            if stamp != self._stamp:
                self._read(stamp)
        finally:
            self._reading.release()

    def _file_stamp(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _read(self, stamp: tuple[int, int] | None) -> None:
        try:
            found = () if stamp is None else tuple(read_bundle(self._path).predictors())
        except (DeuteronError, OSError) as error:
            _log.warning("predictors are not read: %s", error)
            self._stamp = stamp
            return
        held = tuple(sorted(found, key=lambda predictor: predictor.key))
        with self._lock:
            self._held, self._stamp = held, stamp
            self._version += 1
