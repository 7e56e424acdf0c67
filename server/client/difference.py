"""What a new bundle has and the old one has not: fetched by pieces, the rest copied.

Nothing here is trusted. What it makes is the beginning of a file whose sha256 is checked when it is whole, and whose
signature is; whatever goes wrong, the rest, or all of it, is downloaded as if there had been no old file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import httpx

from deuteron.tuner.codec import decode
from deuteron.tuner.errors import SchemaError
from deuteron.tuner.http import HttpClient, ServiceError, ServiceUnreachable
from deuteron.tuner.records.pieces import PieceList, Stretch, pieces, plan

from ..files import file_sha256

#: Bytes of a list of pieces: of a bundle of a million records some 400 KB.
_LONGEST_LIST = 1 << 24
#: With more requests than this, or more than this part of the file to fetch, the whole is as quick.
_MOST_REQUESTS, _MOST_FETCHED = 64, 0.5
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COPIED = 1 << 20  # bytes at a time
#: A few bytes of a packed answer may become gigabytes; ranges are those of the plain file anyway.
_PLAIN = {"Accept-Encoding": "identity"}


def fetch_difference(
    http: HttpClient,
    address: str,
    parameters: Mapping[str, str],
    old: Path,
    present: str,
    part_path: Callable[[str], Path],
    most_bytes: int,
) -> None:
    """Begin the file that ``address`` has now beside ``old``, whose sha256 is ``present``: at ``part_path`` of its
    sha256, as far as it comes.

    Nothing is left of what came whole and is another file. Nothing is begun where the files are the same, where the
    service lists no pieces, where the new one has more than ``most_bytes``, or where the whole is as quick.
    """
    try:
        new = _listed(http, address, parameters)
        if new is None or new.sha256 == present:
            return
        with old.open("rb") as file:
            runs = plan(new, list(pieces(file)))
        fetched = [run for run in runs if run.source is None]
        total = sum(new.sizes)
        if (
            total > most_bytes
            or len(fetched) > _MOST_REQUESTS
            or sum(run.size for run in fetched) > _MOST_FETCHED * total
        ):
            return
        with old.open("rb") as source, part_path(new.sha256).open("wb") as target:
            for run in runs:
                if run.source is None:
                    _fetch(http, f"/v1/bundles/{new.sha256}", run, target)
                else:
                    _copy(source, run.source, run.size, target)
            target.flush()
            os.fsync(target.fileno())
        if file_sha256(part_path(new.sha256)) != new.sha256:
            part_path(new.sha256).unlink()
    except (ServiceError, ServiceUnreachable, SchemaError, httpx.TransportError):
        return


def _listed(http: HttpClient, address: str, parameters: Mapping[str, str]) -> PieceList | None:
    """The pieces that the service lists; None for what is no list of pieces."""
    with http.stream(f"{address}/pieces", raw_errors=True, params=dict(parameters), headers=_PLAIN) as response:
        if "content-encoding" in response.headers:
            return None
        text = bytearray()
        for chunk in response.iter_raw():
            text += chunk
            if len(text) > _LONGEST_LIST:
                return None
    listed = decode(bytes(text), PieceList, "the list of pieces")
    return listed if _SHA256.fullmatch(listed.sha256) else None


def _fetch(http: HttpClient, address: str, run: Stretch, target: BinaryIO) -> None:
    """Raises httpx.TransportError where another part is sent, or too little; what came is kept."""
    headers = {"Range": f"bytes={run.start}-{run.start + run.size - 1}", **_PLAIN}
    with http.stream(address, raw_errors=True, headers=headers) as response:
        if response.status_code != 206 or "content-encoding" in response.headers:
            raise httpx.RemoteProtocolError(f"{address} sent something else than the range that was asked for")
        left = run.size
        for chunk in response.iter_raw():
            target.write(chunk[:left])
            left -= min(left, len(chunk))
            if not left:
                return
    raise httpx.RemoteProtocolError(f"{address} sent {left} bytes too few")


def _copy(source: BinaryIO, start: int, size: int, target: BinaryIO) -> None:
    """Raises httpx.TransportError where the old file has become shorter meanwhile."""
    source.seek(start)
    while size:
        held = source.read(min(size, _COPIED))
        if not held:
            raise httpx.ReadError("the file that is there changed while it was read")
        size -= target.write(held)
