from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.tuner.errors import BundleError
from deuteron.tuner.records import Predictor, bundle, lookup, read_bundle, write_bundle
from deuteron.tuner.records.bundle import encode_predictor


@pytest.fixture
def bundle_path(tmp_path: Path, make_record) -> Path:  # type: ignore[no-untyped-def]
    path = tmp_path / "some" / "h100.bundle"
    write_bundle(path, [make_record({"n": n}) for n in (4, 1, 3, 2)], service="test")
    return path


def test_round_trip_is_sorted_and_verified(bundle_path: Path) -> None:
    bundle = read_bundle(bundle_path)
    assert bundle.manifest.count == 4 and bundle.manifest.service == "test"
    assert [r.shape["n"] for r in bundle.records()] == [1, 2, 3, 4]
    assert len(bundle.index()) == 4


def test_same_records_give_the_same_body(tmp_path: Path, make_record) -> None:  # type: ignore[no-untyped-def]
    records = [make_record({"n": n}) for n in (1, 2)]
    a = write_bundle(tmp_path / "a", records)
    b = write_bundle(tmp_path / "b", iter(records))
    assert a.body_sha256 == b.body_sha256


def test_unsorted_or_repeated_stream_is_refused_and_leaves_nothing(tmp_path: Path, make_record) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "out.bundle"
    with pytest.raises(BundleError, match="out of order"):
        write_bundle(path, iter([make_record({"n": 2}), make_record({"n": 1})]))
    with pytest.raises(BundleError, match="repeated"):
        write_bundle(path, [make_record({"n": 2}), make_record({"n": 2})])
    assert list(tmp_path.iterdir()) == []


def test_a_predictor_that_no_reader_takes_is_not_written(
    tmp_path: Path, predictor: Callable[..., Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = predictor()
    monkeypatch.setattr(bundle, "MAX_LINE", len(encode_predictor(made)))
    write_bundle(tmp_path / "taken", [], predictors=[made])
    assert list(read_bundle(tmp_path / "taken").predictors()) == [made]
    with pytest.raises(BundleError, match="takes .* bytes; a bundle's line has at most"):
        write_bundle(tmp_path / "refused", [], predictors=[predictor(kernel_name="kernel1")])
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_failed_write_keeps_the_old_file(bundle_path: Path, make_record) -> None:  # type: ignore[no-untyped-def]
    before = bundle_path.read_bytes()

    def broken():  # type: ignore[no-untyped-def]
        yield make_record({"n": 1})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bundle(bundle_path, broken())
    assert bundle_path.read_bytes() == before
    assert len(list(bundle_path.parent.iterdir())) == 1


@pytest.mark.parametrize("cut", [1, 40, 400, -1, -300])
def test_truncated_bundle_names_line_and_remedy(bundle_path: Path, cut: int) -> None:
    bundle_path.write_bytes(bundle_path.read_bytes()[:cut])
    with pytest.raises(BundleError, match=r"truncated.*line \d") as caught:
        read_bundle(bundle_path)
    assert caught.value.hint == "fetch or export it again"


def test_missing_last_record(bundle_path: Path) -> None:
    lines = bundle_path.read_bytes().splitlines(keepends=True)
    bundle_path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(BundleError, match="promises 4 records, it ends in line 4"):
        read_bundle(bundle_path)
    bundle_path.write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(BundleError, match="line 6 does not belong"):
        read_bundle(bundle_path)


def test_changed_byte_is_found_by_the_checksum(bundle_path: Path) -> None:
    data = bundle_path.read_bytes()
    bundle_path.write_bytes(data.replace(b'"BLOCK":128', b'"BLOCK":256', 1))
    with pytest.raises(BundleError, match="corrupt: the sha256"):
        read_bundle(bundle_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{}\n", "line 1: the field 'schema' is missing"),
        (b"not json\n", "line 1: not valid JSON at line 1"),
        (b'{"schema": 3}\n', "schema 3; this deuteron reads schemas 1 and 2"),
        (b'{"schema": "1"}\n', "schema '1'; this deuteron reads schemas 1 and 2"),
        (b"\xff\xfe\n", "not UTF-8"),
    ],
)
def test_not_a_bundle(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=message):
        read_bundle(path)
    with pytest.raises(BundleError, match="cannot read"):
        read_bundle(tmp_path / "absent")


def test_wrong_record_names_its_line(bundle_path: Path) -> None:
    import hashlib

    lines = bundle_path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"id": 7}\n'
    manifest = json.loads(lines[0])
    manifest["body_sha256"] = hashlib.sha256(b"".join(lines[1:])).hexdigest()
    lines[0] = json.dumps(manifest).encode() + b"\n"
    bundle_path.write_bytes(b"".join(lines))
    bundle = read_bundle(bundle_path)
    with pytest.raises(BundleError, match="line 3"):
        list(bundle.records())


def test_streams_without_holding_the_file(tmp_path: Path, make_record) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "large"
    record = make_record({"n": 1})
    count = 4000

    def stream():  # type: ignore[no-untyped-def]
        for n in range(count):
            yield replace(record, kernel_hash=f"{n:064d}")

    tracemalloc.start()
    write_bundle(path, stream())
    assert sum(1 for _ in read_bundle(path).records()) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size > 2_000_000
    # two copy buffers of 1 MiB and single records
    assert peak < path.stat().st_size * 0.9 or peak < 2_500_000


def raw_bundle(path: Path, changes: dict[str, object], *lines: str) -> Path:
    """A bundle of these lines whose manifest has these fields."""
    body = "".join(f"{line}\n" for line in lines)
    digest = hashlib.sha256(body.encode()).hexdigest()
    head = {"schema": 1, "created_at": "", "service": "local", "count": len(lines), "body_sha256": digest, **changes}
    path.write_text(json.dumps(head) + "\n" + body)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"count": -1, "schema": 2, "predictors": 2},
        {"count": 2, "predictors": -1},
        {"count": 10**40},
        {"count": "\ud800"},
        {"signature": "\udfff"},
    ],
)
def test_manifests_that_cannot_be_are_refused(tmp_path: Path, make_record, changes: dict[str, object]) -> None:  # type: ignore[no-untyped-def]
    path = raw_bundle(tmp_path / "b", changes, json.dumps(make_record({"n": 1}).to_json()))
    with pytest.raises(BundleError, match="line 1"):
        read_bundle(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": {"n": 10**40}, "shape_key": ""},
        {"shape": {"n": -1}, "shape_key": ""},
        {"trials": 1 << 63},
        {"config": {"BLOCK": 10**40}},
        {"default_config": {"BLOCK": -(10**40)}},
        {"device": {"kind": "cuda", "name": "x", "memory_bytes": 10**400}},
        {"device": {"kind": "cuda", "name": "x", "memory_bytes": -1}},
        {"device": {"kind": "cuda", "name": "x", "sm_count": 1 << 63}},
        {"device": {"kind": "cuda", "name": "x", "compute_capability": [10**30, 0]}},
    ],
)
def test_records_with_numbers_that_cannot_be_are_refused(
    tmp_path: Path, make_record, changes: dict[str, object]
) -> None:  # type: ignore[no-untyped-def]
    line = json.dumps({**make_record({"n": 1}).to_json(), **changes})
    with pytest.raises(BundleError, match="line 2") as caught:
        list(read_bundle(raw_bundle(tmp_path / "b", {}, line)).records())
    assert len(caught.value.message) < 300


def test_a_shape_of_any_size_can_be_asked_for(make_record) -> None:  # type: ignore[no-untyped-def]
    """Among so few records as are looked at one by one, and among many."""
    for count in (2, 100):
        records = [make_record({"n": n + 1}) for n in range(count)]
        answer = lookup(records, records[0].kernel_hash, records[0].device, {"n": 10**40}, records[0].dtype)
        assert answer.match == "default" and "farther" in answer.reason


def test_a_bundle_is_as_readable_as_other_files(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch()
    write_bundle(tmp_path / "bundle", [])
    assert (tmp_path / "bundle").stat().st_mode == other.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "other"]
