"""The journal of a local search: every event on its own line, synced to disk before the search goes on.

A search that is killed loses at most the trial it was measuring: the next run of the same job reads the journal and goes
on. The first line identifies the job; a last line that was cut off by a crash is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from .errors import JournalError, SchemaError
from .events import TrialFinished, TuneEvent, event_from_json
from .job import JobSpec
from .json_fields import Fields, JsonObject, canonical_json, parse_json
from .trial import Trial

VERSION = 1
FILE_NAME = "journal.jsonl"


def job_digest(spec: JobSpec) -> str:
    """Equal for jobs whose trials may be mixed: everything but the budget."""
    data = spec.to_json()
    del data["budget"]
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


class Journal:
    """Opens (or starts) the journal of ``spec`` in ``folder`` and locks it. A context manager.

    Raises :class:`JournalError` when it cannot be written, when another process uses it, when it belongs to another job, or when a line other than
    the last is damaged.
    """

    def __init__(self, folder: Path, spec: JobSpec) -> None:
        self.path = folder / FILE_NAME
        self._digest = job_digest(spec)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror}", hint="name another folder") from None
        try:
            self._lock()
            self.trials: list[tuple[Mapping[str, int], str, Trial]] = self._recover()
        except BaseException:
            self._file.close()
            raise

    def append(self, event: TuneEvent) -> None:
        """Write an event; when this returns it survives a crash of process and machine."""
        self._append(event.to_json())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _append(self, value: JsonObject) -> None:
        self._file.write(canonical_json(value).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(
                f"another process is tuning with the journal {self.path}",
                hint="wait for it, or use another folder",
            ) from None

    def _recover(self) -> list[tuple[Mapping[str, int], str, Trial]]:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
            os.fsync(self._file.fileno())
        lines = whole.splitlines()
        if not lines:
            self._append({"journal": VERSION, "job": self._digest})
            return []
        self._check_header(lines[0])
        events = (self._read(number, line) for number, line in enumerate(lines[1:], start=2))
        return [(event.shape, event.dtype, event.trial) for event in events if isinstance(event, TrialFinished)]

    def _check_header(self, line: bytes) -> None:
        where = f"{self.path}, line 1"
        try:
            fields = Fields(parse_json(line, where), where)
            version, job = fields.integer("journal"), fields.text("job")
        except SchemaError as error:
            raise JournalError(f"not a journal: {error.message}", hint="use another folder") from None
        if version != VERSION or job != self._digest:
            raise JournalError(
                f"{self.path} belongs to another job (kernel and its options, shapes, dtypes, device, strategy and seed "
                "must be the same)",
                hint="use another folder, or delete the journal to start again",
            )

    def _read(self, number: int, line: bytes) -> TuneEvent:
        where = f"{self.path}, line {number}"
        try:
            return event_from_json(parse_json(line, where), where)
        except SchemaError as error:
            raise JournalError(f"the journal is damaged: {error.message}", hint="delete it to start again") from None


def read_events(path: Path) -> Iterator[TuneEvent]:
    """The events in a journal, for showing what happened; stops at a line that was cut off."""
    with path.open("rb") as file:
        next(file, None)
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield event_from_json(parse_json(line, str(path)), str(path))
