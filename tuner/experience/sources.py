"""Reading earlier searches: journals and folders of them, bundles, and services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ..codec import Document, decode
from ..errors import SchemaError, TunerError
from ..events import JobStarted, ShapeFinished, TrialFinished
from ..journal import FILE_NAME, JournalHeader, read_events
from ..records import read_bundle
from .search_log import MOST_LOGS, SearchLog, logs_of_records, logs_of_trials

_JOURNAL, _ADDRESS = "journal", ("http://", "https://")


class SourceError(TunerError):
    """Earlier searches cannot be read from where they should be."""


class KnownSearches(Document, frozen=True):
    """What a service answers about the searches of a kernel."""

    noun: ClassVar[str] = "searches"

    searches: tuple[SearchLog, ...]


def read_logs(source: str, kernel_name: str, *, token: str = "") -> list[SearchLog]:
    """The searches of a kernel that ``source`` knows: a journal, a folder with one or with folders that have one, a
    bundle, or the address of a service, which ``token`` opens.

    Raises:
        SourceError: it is none of these.
        BundleError, SchemaError: it is damaged; the message names the line.
        ServiceUnreachable, ServiceError: the service does not answer, or refuses.
    """
    if source.startswith(_ADDRESS):
        return _ask(source, kernel_name, token)
    path = Path(source)
    if path.is_dir():
        journals = [path / FILE_NAME] if (path / FILE_NAME).is_file() else sorted(path.glob(f"*/{FILE_NAME}"))
        if not journals:
            raise SourceError(
                f"{path}: neither it nor a folder in it has a {FILE_NAME}", hint="a folder that `deuteron tune` wrote"
            )
        logs = [log for journal in journals for log in _of_journal(journal)]
    elif _is_journal(path):
        logs = _of_journal(path)
    else:
        logs = logs_of_records(read_bundle(path).records())
    return [log for log in logs if log.kernel_name == kernel_name]


def _is_journal(path: Path) -> bool:
    """Whether the first line is a journal's."""
    try:
        with path.open("rb") as file:
            line = file.readline(4096)
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be read: {error.strerror}", hint="a bundle, a journal, or a service's http:// address"
        ) from None
    try:
        decode(line, JournalHeader, _JOURNAL)
    except SchemaError:
        return False
    return True


def _of_journal(path: Path) -> list[SearchLog]:
    """The logs of a journal. One that no shape was finished in does not say which text of the kernel it is of."""
    kernel = device = kernel_hash = ""
    trials = []
    for event in _events(path):
        match event:
            case JobStarted():
                kernel, device = event.kernel_name, event.device
            case TrialFinished():
                trials.append((event.shape, event.dtype, event.trial))
            case ShapeFinished(record=record):
                kernel_hash = record.kernel_hash
            case _:
                pass
    return logs_of_trials(kernel, kernel_hash, device, trials)


def _events(path: Path) -> Iterator[object]:
    try:
        yield from read_events(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None


def _ask(address: str, kernel_name: str, token: str) -> list[SearchLog]:
    from ..http import HttpClient  # lazy: httpx is for those who ask a service

    with HttpClient(address, token=token) as http:
        answer = http.send("GET", "/v1/searches", params={"kernel": kernel_name, "limit": MOST_LOGS}).content
    return list(decode(answer, KnownSearches, f"the answer of {address}").searches)
