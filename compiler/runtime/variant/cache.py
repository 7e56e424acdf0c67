"""The disk cache: one file an entry, published by rename, checked when read, bounded in size.

Any number of processes may use a folder at once. A writer makes a temporary file and renames it over the entry, so a
reader sees the old entry, the new one or none; two writers of one key write the same thing. A checksum finds torn and
damaged entries, so nothing is synced to disk: after a power cut an entry may be lost, and is then compiled again.
Entries are data (JSON and bytes): reading one never executes anything that it says.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import knobs
from ...folders import make_folder

_MAGIC = b"DEUTERON-CACHE-1\n"
_PREFIX = struct.Struct("<32sQI")  # sha256 of what follows the prefix, its length, length of the JSON header
_SUFFIX = ".entry"
_TEMPORARY = ".writing"
#: A temporary file older than this was left by a process that died.
_ABANDONED_SECONDS = 3600.0
#: Other processes fill the folder too; look at it again after this many entries of our own.
_STORES_BETWEEN_SCANS = 256
#: Evict down to this part of the bound, so that the next store does not evict again.
_LOW_WATER = 0.9


class CacheWarning(RuntimeWarning):
    """The disk cache is damaged or cannot be used; the work goes on without it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is stored under a key: a JSON object and named blobs."""

    header: Mapping[str, object]
    blobs: Mapping[str, bytes]


class DamagedEntry(Exception):  # noqa: N818 -- never leaves this module
    """An entry's bytes are not what was written."""


class DiskCache:
    """Entries under ``folder``, keyed by hexadecimal digests. All methods are safe between threads and processes."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._estimate: int | None = None  # bytes in the folder; None before the first scan
        self._stores = 0
        self._broken = False

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` lies."""
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def get(self, key: str) -> Entry | None:
        """The entry, or None. A damaged one is reported by a CacheWarning and counts as absent."""
        if self.limit_bytes == 0:
            return None
        path = self.path(key)
        try:
            raw = path.read_bytes()
        except OSError:
            return None
        try:
            entry = decode(raw)
        except DamagedEntry as why:
            warnings.warn(f"the cache entry {path} is damaged ({why}); making it again", CacheWarning, 2)
            _remove(path)
            return None
        _touch(path)
        return entry

    def put(self, key: str, entry: Entry) -> None:
        """Publish an entry. When the folder cannot be written a CacheWarning says so, once, and nothing is kept."""
        if self.limit_bytes == 0 or self._broken:
            return
        raw = encode(entry)
        path = self.path(key)
        temporary = path.with_name(f"{key[:16]}-{os.getpid()}-{secrets.token_hex(4)}{_TEMPORARY}")
        try:
            make_folder(path.parent)
            try:
                temporary.write_bytes(raw)
                temporary.replace(path)
            finally:
                _remove(temporary)
        except OSError as error:
            self._give_up(error)
            return
        self._account(len(raw))

    def _give_up(self, error: OSError) -> None:
        self._broken = True
        warnings.warn(
            f"the cache folder {self.folder} cannot be written ({error.strerror or error}); compiled kernels are not "
            "kept (DEUTERON_CACHE_DIR names another folder)",
            CacheWarning,
            3,
        )

    def _account(self, size: int) -> None:
        """Count what was stored, and evict when the folder may have outgrown its bound."""
        with self._lock:
            self._stores += 1
            if self._estimate is not None:
                self._estimate += size
            due = self._estimate is None or self._estimate > self.limit_bytes
            if due or self._stores % _STORES_BETWEEN_SCANS == 0:
                self._estimate = self.evict()

    def evict(self) -> int:
        """Delete least recently used entries until the rest fits; returns the bytes left."""
        entries = sorted(self._scan())
        total = sum(size for _, size, _ in entries)
        if total <= self.limit_bytes:
            return total
        for _, size, path in entries:
            if total <= self.limit_bytes * _LOW_WATER:
                break
            _remove(path)
            total -= size
        return total

    def _scan(self) -> Iterator[tuple[float, int, Path]]:
        """Last use, size and path of every entry; deletes what dead writers left."""
        now = time.time()
        for path in self.folder.glob("*/*"):
            try:
                status = path.stat()
            except OSError:
                continue
            if path.suffix == _SUFFIX:
                yield status.st_mtime, status.st_size, path
            elif path.suffix == _TEMPORARY and now - status.st_mtime > _ABANDONED_SECONDS:
                _remove(path)

    def clear(self) -> None:
        """Delete every entry."""
        for _, _, path in self._scan():
            _remove(path)
        with self._lock:
            self._estimate = None


def encode(entry: Entry) -> bytes:
    """The bytes of an entry: magic, checksum, lengths, JSON header, blobs."""
    sizes = [[name, len(blob)] for name, blob in entry.blobs.items()]
    head = json.dumps({"header": dict(entry.header), "blobs": sizes}, sort_keys=True).encode()
    body = b"".join([head, *entry.blobs.values()])
    lengths = _PREFIX.pack(bytes(32), len(body), len(head))[32:]
    checksum = hashlib.sha256(lengths + body).digest()
    return b"".join([_MAGIC, checksum, lengths, body])


def decode(raw: bytes) -> Entry:
    """The entry that these bytes hold; raises DamagedEntry when a single bit is wrong."""
    start = len(_MAGIC) + _PREFIX.size
    if not raw.startswith(_MAGIC):
        raise DamagedEntry("it does not begin like an entry")
    if len(raw) < start:
        raise DamagedEntry("it is cut short")
    checksum, length, head_length = _PREFIX.unpack_from(raw, len(_MAGIC))
    if len(raw) - start != length:
        raise DamagedEntry(f"it has {len(raw) - start} bytes where {length} were written")
    if hashlib.sha256(memoryview(raw)[len(_MAGIC) + 32 :]).digest() != checksum:
        raise DamagedEntry("its checksum is wrong")
    head = json.loads(raw[start : start + head_length])
    blobs = {}
    offset = start + head_length
    for name, size in head["blobs"]:
        blobs[name] = raw[offset : offset + size]
        offset += size
    return Entry(head["header"], blobs)


def _touch(path: Path) -> None:
    """Mark as used now; access times are off on most systems."""
    try:
        os.utime(path)
    except OSError:
        return


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


_opened: dict[tuple[Path, int], DiskCache] = {}


def variant_cache() -> DiskCache:
    """The cache of compiled variants, where the knobs say."""
    return _open(knobs.cache_dir.get() / "variants")


def autotune_cache() -> DiskCache:
    """The cache of autotuning results, where the knobs say."""
    return _open(knobs.cache_dir.get() / "autotune")


def _open(folder: Path) -> DiskCache:
    where = (folder, knobs.cache_bytes.get())
    return _opened.setdefault(where, DiskCache(*where))
