"""The journal of a local search: every event in a log of its own, so that an interrupted search goes on.

A search that is killed loses at most the trial it was measuring: the next run of the same job reads the journal and
goes on. The first line identifies the job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

from deuteron.compiler.folders import make_folder

from .codec import Document, canonical_json, decode
from .errors import JournalError, SchemaError
from .event_log import EventLog, read_lines
from .events import TrialFinished, TuneEvent, decode_event
from .input_file import open_file
from .job import JobSpec
from .trial import Trial

VERSION = 1
FILE_NAME = "journal.jsonl"


def job_digest(spec: JobSpec) -> str:
    """Equal for jobs whose trials may be mixed: everything but the budget."""
    data = spec.to_json()
    del data["budget"]
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


class JournalHeader(Document, frozen=True):
    """The first line. ``journal``: version of the format; ``job``: :func:`job_digest`."""

    journal: int
    job: str


class Journal:
    """Opens (or starts) the journal of ``spec`` in ``folder`` and locks it. A context manager.

    ``trials``: shape, dtype and trial of every one that an earlier run finished. Raises :class:`JournalError` when it
    cannot be written, when another process uses it, when it belongs to another job, or when a line other than the last
    is damaged.
    """

    def __init__(self, folder: Path, spec: JobSpec) -> None:
        self.path = folder / FILE_NAME
        self._header = JournalHeader(VERSION, job_digest(spec))
        self._log = self._open(folder)
        try:
            self.trials: list[tuple[Mapping[str, int], str, Trial]] = self._recover()
        except BaseException:
            self._log.close()
            raise

    def append(self, event: TuneEvent) -> None:
        """Write an event; when this returns it survives a crash of process and machine. Raises :class:`JournalError`
        where there is no room for it."""
        try:
            self._log.append(event.to_json())
        except OSError as error:
            raise JournalError(
                f"cannot write {self.path}: {error.strerror}", hint="make room, and run the same job again: it goes on"
            ) from None

    def close(self) -> None:
        """Let go of the file, so that another process may use it."""
        self._log.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, folder: Path) -> EventLog:
        try:
            make_folder(folder)
            return EventLog(self.path)
        except BlockingIOError:
            raise JournalError(
                f"another process is tuning with the journal {self.path}",
                hint="wait for it, or use another folder",
            ) from None
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror}", hint="name another folder") from None

    def _recover(self) -> list[tuple[Mapping[str, int], str, Trial]]:
        header = self._header.to_json()
        if not self._log.begins_like(header):
            raise JournalError(
                f"not a journal of this job: the first line of {self.path} was cut off or is of something else",
                hint="use another folder, or delete the file to start again",
            )
        lines = self._log.recover()
        if not lines:
            self._log.append(header)
            return []
        self._check_header(lines[0])
        events = (self._read(number, line) for number, line in enumerate(lines[1:], start=2))
        return [(event.shape, event.dtype, event.trial) for event in events if isinstance(event, TrialFinished)]

    def _check_header(self, line: bytes) -> None:
        try:
            header = _header(line, self.path)
        except SchemaError as error:
            raise JournalError(f"not a journal: {error.message}", hint=error.hint or "use another folder") from None
        if header != self._header:
            raise JournalError(
                f"{self.path} belongs to another job (kernel and its options, shapes, dtypes, device, strategy and "
                "seed must be the same)",
                hint="use another folder, or delete the journal to start again",
            )

    def _read(self, number: int, line: bytes) -> TuneEvent:
        try:
            return decode_event(line, f"{self.path}, line {number}")
        except SchemaError as error:
            raise JournalError(f"the journal is damaged: {error.message}", hint="delete it to start again") from None


def is_journal(path: Path) -> bool:
    """Whether the first line of a file is a journal's. Raises OSError if it cannot be read."""
    with open_file(path) as file:
        line = file.readline(4096)
    try:
        decode(line, JournalHeader, "journal")
    except SchemaError:
        return False
    return True


def read_events(path: Path) -> Iterator[TuneEvent]:
    """The events in a journal, for showing what happened; stops at a line that was cut off. Raises SchemaError naming
    the line."""
    for number, line in enumerate(read_lines(path), start=1):
        if number > 1:
            yield decode_event(line, f"{path}, line {number}")
        else:
            _header(line, path)


def _header(line: bytes, path: Path) -> JournalHeader:
    """The first line of a journal. Raises SchemaError where it is none, or says that this version cannot read on."""
    header = decode(line, JournalHeader, f"{path}, line 1")
    if header.journal != VERSION:
        raise SchemaError(
            f"{path}, line 1: a journal of version {header.journal}; this deuteron reads version {VERSION}",
            hint="use a newer deuteron" if header.journal > VERSION else "tune again",
        )
    return header
