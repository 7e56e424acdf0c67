"""Bundle files: built on disk from a streamed query, named by the sha256 of their content."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deuteron.tuner import ConfigRecord, write_bundle
from deuteron.tuner.codec import decode

from .files import file_sha256, write_whole
from .problems import HttpProblem
from .store import ServiceStore

_SUFFIX = ".bundle"
_KEPT = 64

Selection = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class BundleFile:
    """``sha256`` is over the whole file; it is the strong ETag and the immutable address."""

    path: Path
    sha256: str


class Bundles:
    """Builds and finds bundles. Safe to share between threads.

    Memory stays flat: records flow from a server-side cursor through the tuner's writer to the file, and the
    file is streamed to clients.
    """

    def __init__(self, folder: Path, store: ServiceStore, *, service: str) -> None:
        self._folder = folder
        self._service = service
        self._store = store
        self._lock = threading.Lock()
        self._built: dict[Selection, tuple[int, str]] = {}

    def latest(self, kernel_hash: str | None, device_key: str | None) -> BundleFile:
        """The bundle of everything that is stored now for this kernel and device (None: for all)."""
        selection = (kernel_hash, device_key)
        # One build at a time: a burst of clients after a change must not build the same file many times.
        with self._lock:
            with self._store.read() as tx:
                version = tx.configs.version()
            known = self._built.get(selection)
            if known is not None and known[0] == version:
                path = self._path(known[1])
                if path.is_file():
                    return BundleFile(path, known[1])
            built = self._build(kernel_hash, device_key)
            self._built[selection] = (version, built.sha256)
            self._forget_oldest()
            return built

    def find(self, sha256: str) -> BundleFile:
        """Raises:
        Problem: 404, no such bundle is kept.
        """
        path = self._path(sha256)
        if not path.is_file():
            raise HttpProblem(
                404,
                "bundle-not-found",
                f"there is no bundle {sha256}",
                hint="old bundles are deleted; /v1/bundles/latest has the current one",
            )
        return BundleFile(path, sha256)

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}{_SUFFIX}"

    def _build(self, kernel_hash: str | None, device_key: str | None) -> BundleFile:
        temporary = self._folder / f"{uuid.uuid4()}.part"
        note = self._folder / _note_name(kernel_hash, device_key)
        try:
            manifest = write_bundle(
                temporary,
                self._records(kernel_hash, device_key),
                service=self._service,
                kernel_hash=kernel_hash,
                device_key=device_key,
            )
            unchanged = self._same_content(note, manifest.body_sha256)
            if unchanged is not None:
                return unchanged
            sha256 = file_sha256(temporary)
            temporary.replace(self._path(sha256))
            write_whole(note, json.dumps({"body": manifest.body_sha256, "file": sha256}))
        finally:
            temporary.unlink(missing_ok=True)
        return BundleFile(self._path(sha256), sha256)

    def _same_content(self, note: Path, body_sha256: str) -> BundleFile | None:
        """The bundle of the last build, if it has the same records: then its ETag must not change only
        because the service was restarted or something else was stored."""
        try:
            last = json.loads(note.read_text())
            bundle = BundleFile(self._path(last["file"]), last["file"])
        except (OSError, ValueError, KeyError):
            return None
        same = last["body"] == body_sha256 and bundle.path.is_file()
        return bundle if same else None

    def _records(self, kernel_hash: str | None, device_key: str | None) -> Iterator[ConfigRecord]:
        with self._store.read() as tx:
            for body in tx.configs.stream(kernel_hash=kernel_hash, device_key=device_key):
                yield decode(body, ConfigRecord, "a stored configuration")

    def _forget_oldest(self) -> None:
        files = sorted(self._folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime)
        for path in files[:-_KEPT]:
            path.unlink(missing_ok=True)


def _note_name(kernel_hash: str | None, device_key: str | None) -> str:
    digest = hashlib.sha256(json.dumps([kernel_hash, device_key]).encode()).hexdigest()
    return f"latest-{digest[:32]}.json"
