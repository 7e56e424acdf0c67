"""What the database knows of a kernel's earlier searches, for those that start from them."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from deuteron.tuner import BUILTINS, Trial, builtin_workload, shape_key
from deuteron.tuner.codec import decode
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.experience import SearchLog, SearchPlace, known_configs, logs_of_records
from deuteron.tuner.experience.search_log import MOST_CONFIGS, MOST_LOGS
from deuteron.tuner.job import parse_shape

from .configs import readable_records
from .store import FoundSearch, Transaction

#: Searches that a run gets to start from. It uses half as many, of those that share configurations with it.
NEIGHBOURS = 8
#: And of those searches of one shape and dtype with one text on one device.
OF_A_PLACE = 2
#: Records whose shapes are compared with the one that is searched.
MOST_RECORDS = 20_000

T = TypeVar("T")


def known_searches(tx: Transaction, kernel: str, *, limit: int = MOST_LOGS) -> list[SearchLog]:
    """Searches of the kernel of this name or hash, or of this built-in workload, newest first: those whose trials are
    stored, then records without. At most ``limit``."""
    if kernel in BUILTINS and tx.kernels.newest_named(kernel) is None:
        kernel = builtin_workload(kernel).kernel.name
    logs = _logs(tx, tx.trials.searches(kernel, kernel)[:limit])
    records = _records(config.body for config in tx.configs.of_kernel(kernel, limit=limit))
    return [*logs, *_without_trials(records, logs)][:limit]


def nearest_searches(tx: Transaction, place: SearchPlace, *, limit: int, without: str | None = None) -> list[SearchLog]:
    """Searches that say something about ``place``, nearest first: of the newest jobs, also of those that run, and
    records whose trials are not stored. At most ``limit``. ``without``: a job whose trials are left out."""
    searches = tx.trials.searches(place.kernel_name, place.kernel_hash, without=without)
    logs = _logs(tx, _nearest(place, ((_place_of(search), search) for search in searches), limit))
    places = itertools.islice(_places_of_records(tx, place), MOST_RECORDS)
    near = _nearest(place, ((at, at) for at in places), limit)
    records = _records(body for at in near for body in _bodies_at(tx, at))
    return _nearest(place, ((log, log) for log in (*logs, *_without_trials(records, logs))), limit)


def _nearest(place: SearchPlace, candidates: Iterable[tuple[SearchPlace | SearchLog, T]], limit: int) -> list[T]:
    """What was measured nearest to ``place``, each with where it was; of those as near, the first. A place that was
    measured often does not keep others out."""
    found = [(place.distance(at), at, what) for at, what in candidates]
    near = [(distance, at, what) for distance, at, what in found if distance is not None]
    of: Counter[object] = Counter()
    chosen: list[T] = []
    for _, at, what in sorted(near, key=lambda entry: entry[0]):
        of[_identity(at)] += 1
        if len(chosen) < limit and of[_identity(at)] <= OF_A_PLACE:
            chosen.append(what)
    return chosen


def _place_of(search: FoundSearch) -> SearchPlace:
    shape = json.loads(search.shape)
    return SearchPlace(search.kernel_name, search.kernel_hash, search.device_key, shape, search.dtype)


def _logs(tx: Transaction, searches: Sequence[FoundSearch]) -> list[SearchLog]:
    """The log of each search that there can be."""
    # Of the history, which keeps what others have replaced.
    keys = tx.config_history.toolchains_of({search.job_id for search in searches})
    toolchains = {job_id: json.loads(key) for job_id, key in keys.items()}
    logs = (_log(tx, search, toolchains.get(search.job_id, {})) for search in searches)
    return [log for log in logs if log is not None]


def _log(tx: Transaction, search: FoundSearch, toolchain: Mapping[str, str]) -> SearchLog | None:
    """The log of one search; None where a worker reported what no search can have, such as a size of 0."""
    bodies = [body for _, body in tx.trials.fastest(search, limit=MOST_CONFIGS)]
    bodies += tx.trials.decided(search.job_id, search.shape, search.dtype)
    try:
        return SearchLog(
            search.kernel_name,
            search.kernel_hash,
            search.device_key,
            json.loads(search.shape),
            search.dtype,
            known_configs([decode(body, Trial, "trial") for body in bodies]),
            toolchain,
        )
    except (ValueError, ArithmeticError, SchemaError):
        return None


def _records(bodies: Iterable[str]) -> list[SearchLog]:
    return logs_of_records(readable_records(bodies))


def _without_trials(records: Iterable[SearchLog], logs: Iterable[SearchLog]) -> list[SearchLog]:
    """Those of records that no log is of the same search."""
    places = {_identity(log) for log in logs}
    return [log for log in records if _identity(log) not in places]


def _identity(log: SearchLog | SearchPlace) -> tuple[str, str, str, str]:
    return log.kernel_hash, log.device, log.dtype, shape_key(log.shape)


def _places_of_records(tx: Transaction, place: SearchPlace) -> Iterator[SearchPlace]:
    """Where there are records of the kernel, those of its own text first; read from an index alone."""
    others = tx.kernels.hashes(place.kernel_name) - {place.kernel_hash}
    for kernel_hash in (place.kernel_hash, *sorted(others)):
        for device, dtype in tx.configs.places(kernel_hash):
            if device.partition("/")[0] != place.device.partition("/")[0]:
                continue  # another kind of device says nothing
            shapes = dict.fromkeys(shape for *_, shape in tx.configs.keys_of(kernel_hash, [device], dtype))
            for shape in shapes:
                with contextlib.suppress(SchemaError):  # an older version let in what is no shape
                    sizes = parse_shape(shape) if shape else {}
                    yield SearchPlace(place.kernel_name, kernel_hash, device, sizes, dtype)


def _bodies_at(tx: Transaction, at: SearchPlace) -> list[str]:
    return tx.configs.candidates(at.kernel_hash, [at.device], at.dtype, shape_keys=[shape_key(at.shape)])
