"""Downloading a bundle: resumable, verified, and published only when it is whole."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import httpx

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.whole_file import open_descriptor, sync_folder
from deuteron.tuner.http import HttpClient, raw_body, unreachable
from deuteron.tuner.http_body import BodyDecoder, BodyRefused

from ..files import alone, file_sha256
from .answers import BundleDownload
from .difference import fetch_difference

_ETAG = re.compile(r'^"([0-9a-f]{64})"$')
_TRIES = 5
_PAUSE_S = 0.3
#: Of a bundle that is downloaded, where nothing else is said.
MOST_BYTES = 1 << 30


class DownloadError(DeuteronError):
    """A bundle could not be downloaded whole, or is not the file that the service announced."""


@dataclass(frozen=True, slots=True)
class _Part:
    """An unfinished download; its name carries the sha256 of the file it is going to be."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Download:
    """One file from an address whose strong ETag is the sha256 of the content.

    A file that is there already is offered in If-None-Match, so an unchanged bundle costs a small request; of one that
    changed only the pieces that the old file has not are fetched (:mod:`.difference`), where the service lists them.
    A lost connection is resumed with Range, also by a later run. The file appears under its name only when
    its sha256 is right and ``accept``, which raises to refuse a file, takes it; until then the old one stays. Of
    several processes that download one file at once one does, and the others wait. ``most_bytes``: a larger file is
    refused.
    """

    http: HttpClient
    address: str
    parameters: Mapping[str, str]
    path: Path
    accept: Callable[[Path], object]
    most_bytes: int = MOST_BYTES

    def run(self) -> BundleDownload:
        """Raises:
        DownloadError: the content is not what the ETag announces, the connection breaks every time, or the file
            cannot be written.
        ServiceError: the service refuses.
        ServiceUnreachable: the service does not answer at all.
        """
        try:
            return self._run()
        except OSError as error:
            raise DownloadError(
                f"cannot write {self.path}: {error.strerror or error}", hint="name another file"
            ) from error

    def _run(self) -> BundleDownload:
        if self.path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if open_descriptor(self.path) is not None or (self.path.exists() and not self.path.is_file()):
            raise DownloadError(
                f"{self.path} is no file", hint="a bundle is kept in one, which later pulls bring up to date"
            )
        # What a link leads to is brought up to date, and the link stays.
        path = Path(os.path.realpath(self.path)) if self.path.is_symlink() else self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unfinished downloads have one name for all: who comes second finds the file there, and asks for a newer one.
        with alone(path.with_name(f".{path.name}.lock")):
            return replace(self, path=path)._brought_up_to_date()

    def _brought_up_to_date(self) -> BundleDownload:
        present = file_sha256(self.path) if self.path.is_file() else None
        if present is not None and next(self._parts(), None) is None:
            # What it leaves is an unfinished download like any other: gone on with, checked and published as one.
            fetch_difference(
                self.http, self.address, self.parameters, self.path, present, self._part_path, self.most_bytes
            )
        for attempt in range(_TRIES):
            try:
                return self._attempt(present)
            except httpx.ConnectError as error:
                raise unreachable(self.http.url, error) from None
            except httpx.TransportError as error:
                if attempt == _TRIES - 1:
                    raise DownloadError(
                        f"the connection broke {_TRIES} times while {self.path.name} was downloaded: "
                        f"{str(error) or type(error).__name__}",
                        hint="run the same command again; it goes on where it stopped",
                    ) from None
                time.sleep(_PAUSE_S)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _attempt(self, present: str | None) -> BundleDownload:
        part = next(self._parts(), None)
        headers: dict[str, str] = {"Accept-Encoding": "identity"}
        if present is not None:
            # Also by the name of its compressed form: caches between here and the service may have that one.
            headers["If-None-Match"] = f'"{present}", "{present}-gzip"'
        if part is not None:
            headers["Range"] = f"bytes={part.path.stat().st_size}-"
            headers["If-Range"] = f'"{part.sha256}"'
        with self.http.stream(self.address, raw_errors=True, params=dict(self.parameters), headers=headers) as response:
            if response.status_code == 304 and present is not None:
                self.accept(self.path)
                self._discard_parts()  # of another version, which is no longer offered
                return BundleDownload(self.path, present, changed=False)
            if response.status_code == 416:
                if part is None:
                    raise DownloadError(f"{response.url} answered a whole request with 416")
                # Everything had arrived before the last run ended.
                return self._publish(part)
            return self._receive(response, part)

    def _receive(self, response: httpx.Response, part: _Part | None) -> BundleDownload:
        match = _ETAG.match(response.headers.get("etag", ""))
        if match is None:
            raise DownloadError(f"{response.url} has no sha256 as its ETag", hint="is this a deuteron service?")
        resumed = response.status_code == 206 and part is not None
        if part is None or not resumed or part.sha256 != match.group(1):
            self._discard_parts()
            part = _Part(self._part_path(match.group(1)), match.group(1))
        with part.path.open("ab") as file:
            self._write(response, file)
            file.flush()
            os.fsync(file.fileno())
        return self._publish(part)

    def _discard_parts(self) -> None:
        for part in self._parts():
            part.path.unlink(missing_ok=True)

    def _write(self, response: httpx.Response, file: BinaryIO) -> None:
        """Append what arrives; a file that is too large is not kept."""
        try:
            encoding, pieces = raw_body(response)
            body = BodyDecoder(encoding, self.most_bytes - file.tell())
            for piece in pieces:
                file.write(body.plain(piece))
        except BodyRefused as error:
            Path(file.name).unlink(missing_ok=True)
            raise DownloadError(
                f"{self.path.name} is not downloaded, of at most {self.most_bytes} bytes: {error.message}",
                hint="--max-mib sets the limit of `deuteron cache pull`",
            ) from None

    def _publish(self, part: _Part) -> BundleDownload:
        actual = file_sha256(part.path)
        if actual != part.sha256:
            part.path.unlink()
            raise DownloadError(
                f"{self.path.name}: the service announced sha256 {part.sha256}, what arrived has {actual}",
                hint="run the command again; if it repeats, something between you and the service alters files",
            )
        try:
            self.accept(part.path)
        except BaseException:
            part.path.unlink()
            raise
        part.path.replace(self.path)
        sync_folder(self.path.parent)
        return BundleDownload(self.path, actual, changed=True)

    def _part_path(self, sha256: str) -> Path:
        return self.path.parent / f".{self.path.name}.{sha256}.part"

    def _parts(self) -> Iterator[_Part]:
        ours = re.compile(rf"\.{re.escape(self.path.name)}\.([0-9a-f]{{64}})\.part")
        for path in self.path.parent.iterdir():
            if match := ours.fullmatch(path.name):
                yield _Part(path, match.group(1))
