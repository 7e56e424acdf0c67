"""Bundle files: built on disk from a streamed query, named by the sha256 of their content."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from deuteron.compiler.whole_file import whole_file, write_whole
from deuteron.tuner.codec import canonical_json
from deuteron.tuner.records import Predictor
from deuteron.tuner.records.bundle import write_encoded_bundle
from deuteron.tuner.records.pieces import PieceList
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder, read_private_key

from .files import file_sha256
from .predictors import Predictors
from .problems import HttpProblem
from .settings import NO_KEY, OWN_KEY, Settings
from .store import ServiceStore
from .upstream import Part, merged_lines

_SUFFIX = ".bundle"
_COMPRESSED = ".gz"
_PIECES = ".pieces"
_LEVEL = 5
_PIECE = 1 << 20
#: Of the bundles that were asked for last so many are kept, and as many more as take so many bytes with those.
_KEPT, _KEPT_BYTES = 64, 2 << 30
#: When a bundle was made that has nothing in it.
_NEVER = datetime.fromtimestamp(0, UTC)

T = TypeVar("T")
Selection = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class BundleFile:
    """``sha256`` is over the whole file; it is the strong ETag and the immutable address."""

    path: Path
    sha256: str

    @property
    def compressed(self) -> Path | None:
        """The same file in gzip's format, None where there is none."""
        path = self.path.with_suffix(_COMPRESSED)
        return path if path.is_file() else None

    @property
    def pieces(self) -> Path | None:
        """Its :class:`PieceList` as JSON, None where an older version built the bundle."""
        path = self.path.with_suffix(_PIECES)
        return path if path.is_file() else None


class Bundles:
    """Builds and finds bundles. Safe to share between threads.

    A bundle follows from what is in it, the service's address and its key: every server of a database builds the same
    file, with the same ETag, after a restart and after it was deleted here, too.

    Memory stays flat: records flow, as they are stored, from a server-side cursor to the file, and the file is streamed
    to clients. Who waits for a build waits in the event loop and holds none of the threads that answer other requests.
    """

    def __init__(
        self,
        folder: Path,
        store: ServiceStore,
        predictors: Predictors,
        *,
        service: str,
        key: SigningKey | None = None,
    ) -> None:
        self._folder = folder
        self._service = service
        self._key = key
        self._store = store
        self._predictors = predictors
        self._lock = threading.Lock()
        self._built: dict[Selection, tuple[tuple[int, int, str], str]] = {}
        self._builder: CapacityLimiter | None = None

    async def take(self, make: Callable[[], T]) -> T:
        """The result of ``make``, which asks for bundles, made in the one thread that is theirs."""
        if self._builder is None:
            self._builder = CapacityLimiter(1)
        return await to_thread.run_sync(make, limiter=self._builder)

    def latest(self, kernel_hash: str | None, device_key: str | None, more: Part | None = None) -> BundleFile:
        """The bundle of everything that is stored now for this kernel and device (None: for all), and of what ``more``,
        which is of an upstream, has besides.

        Raises:
            HttpProblem: 404, there never was anything of this kernel: what anybody can ask for must not take the place
                of bundles that are in use. Where all was withdrawn the bundle is empty, which tells clients.
        """
        selection = (kernel_hash, device_key)
        if kernel_hash is not None:
            self._check_known(kernel_hash, more)
        # One build at a time: a burst of clients after a change must not build the same file many times.
        with self._lock:
            with self._store.read() as tx:
                version = (tx.configs.version(), self._predictors.version(), "" if more is None else more.version)
            known = self._built.get(selection)
            if known is not None and known[0] == version:
                path = self._path(known[1])
                if _is_kept(path):
                    return BundleFile(path, known[1])
            built = self._build(kernel_hash, device_key, more)
            self._built[selection] = (version, built.sha256)
            self._forget_oldest()
            return built

    def find(self, sha256: str) -> BundleFile:
        """Raises:
        HttpProblem: 404, no such bundle is kept.
        """
        path = self._path(sha256)
        if not _is_kept(path):
            raise HttpProblem(
                404,
                "bundle-not-found",
                f"there is no bundle {sha256}",
                hint="old bundles are deleted; /v1/bundles/latest has the current one",
            )
        return BundleFile(path, sha256)

    def _check_known(self, kernel_hash: str, more: Part | None) -> None:
        if (more is not None and more.kernel_hash) or self._predictors.of(kernel_hash):
            return
        with self._store.read() as tx:
            if not tx.config_history.knows_kernel(kernel_hash):
                raise HttpProblem(
                    404,
                    "kernel-not-found",
                    f"nothing was ever stored of the kernel {kernel_hash[:12]}",
                    hint="tune it first; without `kernel` the bundle has everything",
                )

    def _predictors_with(self, more: Part | None, kernel_hash: str | None, device_key: str | None) -> list[Predictor]:
        """The own ones, and of the part those for other keys."""
        own = self._predictors.of(kernel_hash, device_key)
        known = {predictor.key for predictor in own}
        theirs = () if more is None else more.predictors
        return [*own, *(p for p in theirs if p.key not in known and device_key in (None, p.device.key))]

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}{_SUFFIX}"

    def _build(self, kernel_hash: str | None, device_key: str | None, more: Part | None) -> BundleFile:
        temporary = self._folder / f"{uuid.uuid4()}.part"
        lines = self._lines(kernel_hash, device_key)
        if more is not None and more.records:
            lines = merged_lines(lines, more, device_key)
        try:
            predictors = self._predictors_with(more, kernel_hash, device_key)
            write_encoded_bundle(
                temporary,
                lines,
                service=self._service,
                created_at=self._newest(kernel_hash, device_key, more, predictors).isoformat(),
                kernel_hash=kernel_hash,
                device_key=device_key,
                predictors=predictors,
                sign_with=self._key,
            )
            sha256 = file_sha256(temporary)
            if _is_kept(self._path(sha256)):
                return BundleFile(self._path(sha256), sha256)
            _compress(temporary, self._path(sha256).with_suffix(_COMPRESSED))
            with temporary.open("rb") as file:
                listed = canonical_json(PieceList.of(sha256, file).to_json())
            write_whole(self._path(sha256).with_suffix(_PIECES), listed, durable=True)
            temporary.replace(self._path(sha256))
        finally:
            temporary.unlink(missing_ok=True)
        return BundleFile(self._path(sha256), sha256)

    def _newest(
        self, kernel_hash: str | None, device_key: str | None, more: Part | None, predictors: Iterable[Predictor]
    ) -> datetime:
        """When the newest of what is in a bundle was made."""
        with self._store.read() as tx:
            own = tx.configs.newest(kernel_hash=kernel_hash, device_key=device_key)
        theirs = [] if more is None else [r for r in more.records if device_key in (None, r.device.key)]
        texts = [*(record.created_at for record in theirs), *(predictor.created_at for predictor in predictors)]
        return max([own or _NEVER, *map(_instant, texts)])

    def _lines(self, kernel_hash: str | None, device_key: str | None) -> Iterator[bytes]:
        with self._store.read() as tx:
            for body in tx.configs.stream(kernel_hash=kernel_hash, device_key=device_key):
                yield body.encode() + b"\n"

    def _forget_oldest(self) -> None:
        used = {path: path.stat() for path in self._folder.glob(f"*{_SUFFIX}")}
        size = 0
        for place, path in enumerate(sorted(used, key=lambda path: used[path].st_atime_ns, reverse=True)):
            size += used[path].st_size
            if place >= _KEPT and size > _KEPT_BYTES:
                path.unlink(missing_ok=True)
                for suffix in (_COMPRESSED, _PIECES):
                    path.with_suffix(suffix).unlink(missing_ok=True)


def _is_kept(path: Path) -> bool:
    """Whether a bundle is there; when it was used is noted then."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def _instant(text: str) -> datetime:
    """What a record of an upstream, or a predictor, says of its age, if that is a time."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return _NEVER


def signing_key(settings: Settings) -> SigningKey | None:
    """The key that bundles are signed with, made if it is the one in the home; None where they are not signed.
    Raises :class:`~deuteron.tuner.errors.KeyFileError`."""
    if settings.signing_key == NO_KEY:
        return None
    if settings.signing_key == OWN_KEY:
        return KeyFolder(settings.keys).own_or_new()
    hint = f"DEUTERON_SIGNING_KEY names a private key, or is {OWN_KEY} or {NO_KEY}"
    return read_private_key(Path(settings.signing_key).expanduser(), hint)


def _compress(source: Path, target: Path) -> None:
    """Write ``target`` whole. The time of writing is left out, so that equal bundles are equal files."""
    with source.open("rb") as plain, whole_file(target) as file, gzip.GzipFile("", "wb", _LEVEL, file, 0) as packed:
        shutil.copyfileobj(plain, packed, _PIECE)
