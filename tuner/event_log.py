"""A file of JSON objects, one a line, that survives the death of its writer and of the machine.

Below the journal of a local search and the spool of a worker. Who writes holds a lock on the file, so a file that
nobody holds was left behind. A last line without its newline was cut off by a crash: what it said never counted.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from deuteron.compiler.whole_file import sync_folder

from .codec import JsonObject, canonical_json
from .input_file import check_regular, open_file

#: Bytes of a first line that are looked at: many more than the header of a log has.
MOST_OF_FIRST_LINE = 1 << 16


class EventLog:
    """Opens and locks the file at ``path``; a context manager.

    Raises :class:`BlockingIOError` when another process holds it, :class:`FileNotFoundError` when it is not there and
    ``create`` is False, :class:`OSError` when it cannot be written.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        # Unbuffered: a line is one call of write, and a kill between two calls would leave half of it.
        new = create and not path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        try:
            check_regular(self._file.fileno(), path)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self._file.close()
            raise
        if new:
            sync_folder(path.parent)

    def append(self, value: JsonObject) -> None:
        """Write one object; when this returns it is on disk. Raises :class:`OSError` when there is no room for it; then
        the file is as it was."""
        line = memoryview(canonical_json(value).encode() + b"\n")
        end = self._file.seek(0, os.SEEK_END)
        try:
            while line:  # of the last bytes of a disk a call takes what fits, and only the next one fails
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise

    def begins_like(self, value: JsonObject) -> bool:
        """Whether the first line is whole, or may be ``value`` as far as a crash let it be written."""
        self._file.seek(0)
        line: bytes = self._file.readline(MOST_OF_FIRST_LINE)
        return line.endswith(b"\n") or canonical_json(value).encode().startswith(line)

    def recover(self) -> list[bytes]:
        """All whole lines, without their newlines; a line that was cut off is removed from the file."""
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._file.truncate(len(whole))
            os.fsync(self._file.fileno())
        return whole.splitlines()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a log that somebody may be writing, without their newlines."""
    with open_file(path) as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            yield line[:-1]
