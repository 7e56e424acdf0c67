"""Bundles: many records in one file that can be checked, copied and read without a network.

Line 1 is the manifest: ``{"schema": 1, "created_at", "service", "kernel_hash", "device_key", "count", "body_sha256"}``.
Each further line is one :class:`~.record.ConfigRecord` as JSON, in the order of the records' keys. Both directions
stream. Schema 2 adds ``"predictors"``, their number: a :class:`~.predictor.Predictor` each in as many lines at the end.
A bundle without any is written as schema 1, so that older versions read it.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from msgspec.structs import replace

from deuteron.compiler.whole_file import whole_file

from ..codec import Count, Document, canonical_json, decode, expect_object, parse_json
from ..errors import BundleError, ExpressionError, SchemaError, SpaceError
from ..input_file import open_file
from ..trial import utc_now
from .lookup import RecordIndex
from .predictor import Predictor
from .record import ConfigRecord
from .signature import Signature, SigningKey, manifest_line

#: Of bundles that hold nothing but records, and of those with predictors.
SCHEMA, WITH_PREDICTORS = 1, 2
MAX_LINE = 1 << 20

T = TypeVar("T", ConfigRecord, Predictor)


class Manifest(Document, frozen=True):
    """The first line of a bundle. ``kernel_hash`` and ``device_key`` are None where records of several are inside."""

    count: Count
    body_sha256: str
    created_at: str
    service: str
    kernel_hash: str | None = None
    device_key: str | None = None
    schema: int = SCHEMA
    predictors: Count = 0
    signature: Signature | None = None

    @classmethod
    def spelled_out(cls, value: object, where: str) -> object:
        """Refuses another schema, whose other fields say nothing to this version."""
        fields = expect_object(value, where)
        if "schema" not in fields:
            raise SchemaError(f"{where}: the field 'schema' is missing")
        schema = fields["schema"]
        if schema not in (SCHEMA, WITH_PREDICTORS):
            newer = isinstance(schema, int) and schema > WITH_PREDICTORS
            raise SchemaError(
                f"{where}: a bundle of schema {repr(schema)[:40]}; "
                f"this deuteron reads schemas {SCHEMA} and {WITH_PREDICTORS}",
                hint="use a newer deuteron" if newer else "export the bundle again",
            )
        return fields


@dataclass(frozen=True)
class Bundle:
    """A bundle file that was verified. ``records`` reads it again, one record at a time. ``head`` is its first line;
    whether the signature in it is true is asked of :mod:`.trust`."""

    path: Path
    manifest: Manifest
    head: bytes = b""

    def records(self) -> Iterator[ConfigRecord]:
        """One record after another, read from the file; raises :class:`BundleError` naming the line."""
        for number, line in self._lines(0, self.manifest.count):
            yield _read_line(self.path, number, line, ConfigRecord)

    def predictors(self) -> Iterator[Predictor]:
        """One predictor after another; raises :class:`BundleError` naming the line, also where trees are none."""
        for number, line in self._lines(self.manifest.count, None):
            yield _read_line(self.path, number, line, Predictor)

    def index(self) -> RecordIndex:
        """All records and predictors, arranged for lookup."""
        return RecordIndex(self.records(), self.predictors())

    def _lines(self, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
        """Lines of the body with their numbers in the file."""
        with open_file(self.path) as file:
            file.readline()
            yield from itertools.islice(enumerate(file, start=2), start, stop)


def encode_record(record: ConfigRecord) -> bytes:
    """The line of one record, newline included."""
    return canonical_json(record.to_json()).encode() + b"\n"


def encode_predictor(predictor: Predictor) -> bytes:
    """The line of one predictor, newline included. Raises :class:`BundleError` for one that is too large."""
    line = canonical_json(predictor.to_json()).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise BundleError(
            f"the predictor of {predictor.kernel_name} for {predictor.dtype} on {predictor.device.key} takes "
            f"{len(line)} bytes; a bundle's line has at most {MAX_LINE}",
            hint="train it on fewer configurations",
        )
    return line


def write_bundle(
    path: str | Path,
    records: Iterable[ConfigRecord],
    *,
    service: str = "local",
    predictors: Iterable[Predictor] = (),
    sign_with: SigningKey | None = None,
) -> Manifest:
    """Write a bundle; the file appears whole or not at all. A list is sorted; what comes out of an iterator must come
    in the order of ``ConfigRecord.key``, without repetition, and is not held in memory. Of ``predictors`` for one key
    the last is written. ``sign_with`` signs it. Raises :class:`BundleError`."""
    path = Path(path)
    if isinstance(records, list | tuple):
        records = sorted(records, key=lambda record: record.key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as body:
            count, digest = _write_body(body, records)
            added = _write_predictors(body, digest, predictors)
            schema = WITH_PREDICTORS if added else SCHEMA
            manifest = Manifest(count, digest.hexdigest(), utc_now(), service, schema=schema, predictors=added)
            manifest = _signed(manifest, sign_with)
            _publish(path, manifest, body)
    except OSError as error:
        raise BundleError(f"cannot write the bundle {path}: {error.strerror or error}") from error
    return manifest


def write_encoded_bundle(
    path: str | Path,
    lines: Iterable[bytes],
    *,
    service: str,
    created_at: str,
    kernel_hash: str | None = None,
    device_key: str | None = None,
    predictors: Iterable[Predictor] = (),
    sign_with: SigningKey | None = None,
) -> Manifest:
    """As :func:`write_bundle` for records that are encoded already (:func:`encode_record`), in the order of their keys,
    each key once, which the caller sees to: nothing is decoded. Equal arguments give equal files. Raises
    :class:`BundleError`."""
    path = Path(path)
    try:
        with tempfile.TemporaryFile(dir=path.parent) as body:
            digest, count = hashlib.sha256(), 0
            for line in lines:
                digest.update(line)
                body.write(line)
                count += 1
            added = _write_predictors(body, digest, predictors)
            schema = WITH_PREDICTORS if added else SCHEMA
            manifest = Manifest(count, digest.hexdigest(), created_at, service, kernel_hash, device_key, schema, added)
            manifest = _signed(manifest, sign_with)
            _publish(path, manifest, body)
    except OSError as error:
        raise BundleError(f"cannot write the bundle {path}: {error.strerror or error}") from error
    return manifest


def _write_body(body: BinaryIO, records: Iterable[ConfigRecord]) -> tuple[int, hashlib._Hash]:
    digest, count = hashlib.sha256(), 0
    previous: tuple[str, ...] | None = None
    for record in records:
        if previous is not None and record.key <= previous:
            what = "repeated" if record.key == previous else "out of order"
            raise BundleError(
                f"the record of {record.kernel_name} for {record.shape_key} {record.dtype} is {what}",
                hint="records of a bundle come sorted by ConfigRecord.key, each key once",
            )
        previous = record.key
        line = encode_record(record)
        digest.update(line)
        body.write(line)
        count += 1
    return count, digest


def _write_predictors(body: BinaryIO, digest: hashlib._Hash, predictors: Iterable[Predictor]) -> int:
    """Append them in the order of their keys; how many."""
    by_key = {predictor.key: predictor for predictor in predictors}
    for key in sorted(by_key):
        line = encode_predictor(by_key[key])
        digest.update(line)
        body.write(line)
    return len(by_key)


def _signed(manifest: Manifest, key: SigningKey | None) -> Manifest:
    return manifest if key is None else replace(manifest, signature=key.sign(manifest_line(manifest.to_json())))


def _publish(path: Path, manifest: Manifest, body: BinaryIO) -> None:
    body.seek(0)
    with whole_file(path) as file:
        file.write(manifest_line(manifest.to_json()))
        shutil.copyfileobj(body, file, 1 << 20)


def read_bundle(path: str | Path) -> Bundle:
    """Open a bundle and verify it: every line, the count and the sha256. Raises :class:`BundleError` naming the line
    and the remedy. Streams: memory does not grow with the file."""
    path = Path(path)
    again = "fetch or export it again"
    try:
        with open_file(path) as file:
            head = file.readline(MAX_LINE)
            manifest = _read_manifest(path, head)
            digest, count, line = hashlib.sha256(), 0, b"\n"
            for line in iter(lambda: file.readline(MAX_LINE), b""):
                digest.update(line)
                count += 1
                if not line.endswith(b"\n"):
                    break
    except OSError as error:
        inside = path / "records.bundle"
        hint = (
            str(inside)
            if isinstance(error, IsADirectoryError) and inside.is_file()
            else "FOLDER/records.bundle of `deuteron tune`, or `deuteron cache pull`"
        )
        raise BundleError(f"cannot read the bundle {path}: {error.strerror}", hint=hint) from error
    promised = manifest.count + manifest.predictors
    words = f"{manifest.count} records" + (f" and {manifest.predictors} predictors" if manifest.predictors else "")
    if not line.endswith(b"\n") or count < promised:
        raise BundleError(
            f"{path} is truncated: its manifest promises {words}, it ends in line {count + 1}",
            hint=again,
        )
    if count > promised:
        raise BundleError(
            f"{path} has {count} records, its manifest promises {words}: line {promised + 2} does not belong to it",
            hint=again,
        )
    if digest.hexdigest() != manifest.body_sha256:
        raise BundleError(
            f"{path} is corrupt: the sha256 of its records is {digest.hexdigest()}, its manifest (line 1) "
            f"says {manifest.body_sha256}",
            hint=again,
        )
    return Bundle(path, manifest, head)


def _read_manifest(path: Path, line: bytes) -> Manifest:
    if not line:
        raise BundleError(f"{path} is empty", hint="a bundle starts with its manifest")
    if not line.endswith(b"\n"):
        raise BundleError(f"{path} is truncated in line 1, its manifest", hint="fetch or export it again")
    try:
        return Manifest.from_json(parse_json(line, f"{path}, line 1"), f"{path}, line 1")
    except SchemaError as error:
        raise BundleError(error.message, hint=error.hint or "this is not a deuteron bundle") from None


def _read_line(path: Path, number: int, line: bytes, kind: type[T]) -> T:
    where = f"{path}, line {number}"
    try:
        return decode(line, kind, where)
    except SchemaError as error:
        raise BundleError(error.message, hint=error.hint or "export the bundle again") from None
    except (SpaceError, ExpressionError) as error:  # which do not know where they were read
        raise BundleError(f"{where}: {error.message}", hint=error.hint or "export the bundle again") from None
