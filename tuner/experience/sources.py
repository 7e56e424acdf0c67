"""Reading earlier searches: journals and folders of them, bundles, services, and files of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..addresses import is_url
from ..codec import decode
from ..events import JobStarted, ShapeFinished, TrialFinished
from ..input_file import read_file
from ..journal import FILE_NAME, is_journal, read_events
from ..records import Bundle, ConfigRecord, read_bundle
from ..trial import Trial
from .foreign import ForeignFormat, SourceError
from .moe_files import MOE_FILES
from .search_log import MOST_LOGS, KnownSearches, SearchLog, logs_of_records, logs_of_trials
from .triton_results import TRITON_RESULTS

if TYPE_CHECKING:
    from ..job import JobSpec

#: Formats of other programs.
FOREIGN: tuple[ForeignFormat, ...] = (TRITON_RESULTS, MOE_FILES)


def read_logs(
    source: str,
    kernel_name: str,
    *,
    token: str = "",
    job: JobSpec | None = None,
    open_bundle: Callable[[Path], Bundle] = read_bundle,
    tell: Callable[[str], None] = lambda line: None,
) -> list[SearchLog]:
    """The searches of a kernel that ``source`` knows: a journal, a folder with one or with folders that have one, a
    bundle, the address of a service, which ``token`` opens, or a JSON file of what one answers to ``GET /v1/searches``;
    for a ``job`` also files of other programs (:data:`FOREIGN`) and folders of them. ``open_bundle`` may refuse
    a bundle that nobody vouches for. Of a folder with many files of another program those that fit are read;
    ``tell`` gets a line for each reason why others were not.

    Raises:
        SourceError: it is none of these, or does not fit the job.
        BundleError, SchemaError: it is damaged; the message names the line.
        ServiceUnreachable, ServiceError: the service does not answer, or refuses.
    """
    if is_url(source):
        return _ask(source, kernel_name, token)
    path = Path(source)
    foreign = [(form, file) for form in FOREIGN for file in form.find(path)]
    if path.is_dir():
        journals = journals_in(path)
        if not journals and not foreign:
            raise SourceError(
                f"{path}: neither it nor a folder in it has a {FILE_NAME}", hint="a folder that `deuteron tune` wrote"
            )
        logs = [log for journal in journals for log in _of_journal(journal)]
    elif foreign:
        logs = []
    elif _is_journal(path):
        logs = _of_journal(path)
    elif path.suffix == ".json":
        logs = list(decode(_content(path), KnownSearches, str(path)).searches)
    else:
        logs = logs_of_records(open_bundle(path).records())
    return [log for log in [*logs, *_of_foreign(foreign, job, tell)] if log.kernel_name == kernel_name]


def journals_in(folder: Path) -> list[Path]:
    """The journal of a folder, or those of the folders in it."""
    return [folder / FILE_NAME] if (folder / FILE_NAME).is_file() else sorted(folder.glob(f"*/{FILE_NAME}"))


def read_records(source: str, *, open_bundle: Callable[[Path], Bundle] = read_bundle) -> list[ConfigRecord]:
    """The records of a source of :func:`read_logs`: a journal, a folder of them, or a bundle; none of a service, or of
    files of other programs. Raises as that does."""
    path = Path(source)
    if is_url(source) or path.suffix == ".json" or any(form.find(path) for form in FOREIGN):
        return []
    journals = journals_in(path) if path.is_dir() else [path] if _is_journal(path) else []
    if not journals and not path.is_dir():
        return list(open_bundle(path).records())
    return [event.record for journal in journals for event in _events(journal) if isinstance(event, ShapeFinished)]


def _of_foreign(
    found: list[tuple[ForeignFormat, Path]], job: JobSpec | None, tell: Callable[[str], None]
) -> list[SearchLog]:
    """Raises where the files need a job, or where all were refused, for the first reason."""
    if found and job is None:
        form, file = found[0]
        raise SourceError(f"{file}: {form.name} say too little without a job", hint="deuteron tune --from takes them")
    logs: list[SearchLog] = []
    refused: list[tuple[Path, SourceError]] = []
    for form, file in found:
        try:
            logs += form.read(file, job) if job is not None else []
        except SourceError as error:
            refused.append((file, error))
    if refused and len(refused) == len(found):
        raise refused[0][1]
    reasons: dict[str, list[Path]] = {}
    for file, refusal in refused:
        reasons.setdefault(refusal.message.replace(str(file), "").lstrip(": "), []).append(file)
    for reason, files in reasons.items():
        tell(f"{len(files)} of {len(found)} files were passed over, such as {files[0]}: {reason}")
    return logs


def _is_journal(path: Path) -> bool:
    try:
        return is_journal(path)
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be read: {error.strerror}", hint="a bundle, a journal, or a service's http:// address"
        ) from None


def _content(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None


def _of_journal(path: Path) -> list[SearchLog]:
    """The logs of a journal. One that no shape was finished in does not say which text of the kernel it is of. Where a
    job continued on another device, or with another toolchain, trials of before are in logs of their own."""
    kernel = device = kernel_hash = ""
    setup: str | None = None
    runs: dict[tuple[str, str | None], list[tuple[Mapping[str, int], str, Trial]]] = {}
    toolchains: dict[tuple[str, str | None], Mapping[str, str]] = {}
    for event in _events(path):
        match event:
            case JobStarted():
                kernel, device = event.kernel_name, event.device
            case TrialFinished(trial=trial):
                setup = trial.setup
                runs.setdefault((device, setup), []).append((event.shape, event.dtype, trial))
            case ShapeFinished(record=record):
                kernel_hash, toolchains[device, setup] = record.kernel_hash, record.toolchain
            case _:
                pass
    return [
        log
        for run, trials in runs.items()
        for log in logs_of_trials(kernel, kernel_hash, run[0], trials, toolchains.get(run))
    ]


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
