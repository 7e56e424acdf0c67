"""Bundles over HTTP, and how launches reveal their shape."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import importlib
import json
import os
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from answering import AnsweringServer, send

from deuteron.compiler import KernelSource, knobs
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.launch.jit import JITFunction
from deuteron.tuner import RecordIndex, builtin_workload, read_bundle, tuned, write_bundle
from deuteron.tuner.errors import BundleError, RecordNotFound, UntrustedBundle
from deuteron.tuner.prediction import Ranking
from deuteron.tuner.records import DeviceFingerprint, current_toolchain
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder
from deuteron.tuner.tuned import fetch_bundle

# Its name in the package is the function's.
tuned_module = importlib.import_module("deuteron.tuner.tuned")


@dataclass
class Service:
    """A web server with one bundle."""

    body: bytes = b""
    etag: str = '"1"'
    status: int = 200
    seen: list[tuple[int, str | None]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def service() -> Iterator[Service]:
    state = Service()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("If-None-Match")
        code = 304 if state.status == 200 and wanted == state.etag else state.status
        state.seen.append((code, wanted))
        send(handler, code, b"" if code == 304 else state.body, etag=state.etag)

    with AnsweringServer(answer) as server:
        state.url = f"{server.url}/v1/bundles/all"
        yield state


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[None]:
    """Trusted keys of the test alone."""
    with knobs.home.scope(tmp_path / "home"):
        yield


@pytest.fixture
def body(tmp_path: Path, make_record) -> bytes:  # type: ignore[no-untyped-def]
    key = SigningKey.generate()
    write_bundle(tmp_path / "b", [make_record({"n": n}) for n in (1, 2)], service="http://there", sign_with=key)
    return (tmp_path / "b").read_bytes()


def test_fetched_once_then_revalidated_then_offline(service: Service, body: bytes, tmp_path: Path) -> None:  # fmt: skip
    service.body = body
    path = fetch_bundle(service.url, tmp_path / "cache")
    assert read_bundle(path).manifest.count == 2
    assert fetch_bundle(service.url, tmp_path / "cache") == path
    assert service.seen == [(200, None), (304, '"1"')]
    closed = service.url.replace("/v1/", "/v2/")
    with pytest.raises(BundleError, match="corrupt|truncated|empty"):
        service.body = body[:-20]
        fetch_bundle(closed, tmp_path / "cache")
    assert [p.suffix for p in sorted((tmp_path / "cache").iterdir())] == [".bundle", ".etag"]


def test_an_older_copy_that_another_process_published_last_is_fetched_anew(
    service: Service, body: bytes, tmp_path: Path, make_record
) -> None:  # type: ignore[no-untyped-def]
    """Its ETag would be that of the newer copy, which a service answers with 304 for ever."""
    write_bundle(tmp_path / "old", [make_record({"n": 1})])
    service.body = body
    path = fetch_bundle(service.url, tmp_path / "cache")
    path.write_bytes((tmp_path / "old").read_bytes())
    assert fetch_bundle(service.url, tmp_path / "cache").read_bytes() == body
    assert service.seen == [(200, None), (200, None)]


def test_unreachable_service_uses_the_copy(body: bytes, tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/bundle"
    with pytest.raises(BundleError, match="cannot fetch") as caught:
        fetch_bundle(url, tmp_path)
    assert "pass its path" in (caught.value.hint or "")
    import hashlib

    copy = tmp_path / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.bundle"
    copy.write_bytes(body)
    assert fetch_bundle(url, tmp_path) == copy


def test_a_copy_is_not_replaced_by_what_another_key_signed(
    service: Service, body: bytes, tmp_path: Path, make_record
) -> None:  # type: ignore[no-untyped-def]
    """The first key that the server shows is trusted; what another key signed, or none, is refused after it."""
    service.body = body
    path = fetch_bundle(service.url, tmp_path / "cache")
    write_bundle(tmp_path / "unsigned", [make_record({"n": 1})])
    write_bundle(tmp_path / "other", [make_record({"n": 1})], sign_with=SigningKey.generate())
    for name, says in (("unsigned", "is not signed"), ("other", "has changed")):
        service.body, service.etag = (tmp_path / name).read_bytes(), f'"{name}"'
        with pytest.raises(UntrustedBundle, match=says):
            tuned(kernel(), service.url)
        with pytest.raises(UntrustedBundle, match=says):
            fetch_bundle(service.url, tmp_path / "cache")
        assert path.read_bytes() == body
        fetch_bundle(service.url, tmp_path / "anyway", allow_unsigned=True)


def test_a_copy_of_a_key_that_was_forgotten_is_not_used(service: Service, body: bytes, tmp_path: Path) -> None:
    service.body, keys = body, KeyFolder(tmp_path / "home" / "keys")
    tuned(kernel(), service.url)
    (key,) = keys.trusted()
    keys.forget(key)
    with pytest.raises(UntrustedBundle, match="is trusted no longer"):
        tuned(kernel(), service.url)
    assert [status for status, _ in service.seen] == [200, 304]


def test_a_transfer_that_breaks_leaves_nothing(body: bytes, tmp_path: Path) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 200, body[:100], content_length=str(len(body)))

    with AnsweringServer(answer) as server, pytest.raises(BundleError, match="cannot fetch"):
        fetch_bundle(server.url, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(("encoding", "size"), [("gzip", (1 << 20) + 1), ("", (1 << 20) + 1), ("br", 10)])
def test_what_swells_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, size: int) -> None:
    """A megabyte of gzip filled the disk with a gigabyte before anybody looked at the signature."""
    monkeypatch.setattr(tuned_module, "MOST_BUNDLE_BYTES", 1 << 20)
    body = gzip.compress(bytes(size)) if encoding == "gzip" else bytes(size)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 200, body, content_encoding=encoding)

    with AnsweringServer(answer) as server, pytest.raises(BundleError, match="is no bundle: the body"):
        fetch_bundle(server.url, tmp_path / "cache")
    assert not any((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_server_that_dribbles_is_left_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """Each byte began the time anew, so that a program never started."""
    monkeypatch.setattr(tuned_module, "FETCH_SECONDS", 0.5)
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + (b"\r\n\r\n" if part == "body" else b""))
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()

    began = time.monotonic()
    with AnsweringServer(answer) as server:
        with pytest.raises(BundleError, match="did not answer in time"):
            fetch_bundle(server.url, tmp_path / "cache")
        over.set()
    assert time.monotonic() - began < 10


def test_bundles_that_have_moved_are_found(body: bytes, tmp_path: Path) -> None:
    """A few redirects long; the bodies of redirects are not read."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        left = int(handler.path.removeprefix("/"))
        send(handler, 302 if left else 200, b"" if left else body, location=f"/{left - 1}")

    with AnsweringServer(answer) as server:
        assert fetch_bundle(f"{server.url}/5", tmp_path / "cache").read_bytes() == body
        with pytest.raises(BundleError, match="redirects more than 5 times"):
            fetch_bundle(f"{server.url}/6", tmp_path / "cache")


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot fetch http://a..b: 'http://a..b' is not an address"):
        fetch_bundle("http://a..b", tmp_path)
    for odd in ("http://a\n", "http://a/\ud800", "http://a/#b"):
        with pytest.raises(BundleError, match="is not an address"):
            fetch_bundle(odd, tmp_path)


def test_schemes_may_be_in_capitals(service: Service, body: bytes) -> None:
    """Such an address was a path, of no bundle."""
    service.body = body
    address = service.url.replace("http:", "HTTP:")
    tuned(kernel(), address)
    assert service.seen == [(200, None)]


def test_the_bundle_of_one_kernel(body: bytes, tmp_path: Path) -> None:
    """As pages of a service link to it: an address with a query was none."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 200 if handler.path == "/v1/bundles/latest?kernel=softmax&device=cpu%2Fx" else 404, body)

    with AnsweringServer(answer) as server:
        address = f"{server.url}/v1/bundles/latest?kernel=softmax&device=cpu%2Fx"
        assert fetch_bundle(address, tmp_path / "cache").read_bytes() == body


@pytest.mark.parametrize("etag", ['"\xe9"', ""])
def test_an_etag_that_no_request_can_carry_is_not_sent(
    service: Service, body: bytes, tmp_path: Path, etag: str
) -> None:
    """It was kept, and ended every later start."""
    service.body, service.etag = body, etag
    path = fetch_bundle(service.url, tmp_path / "cache")
    assert fetch_bundle(service.url, tmp_path / "cache") == path
    assert service.seen == [(200, None), (200, None)]


@pytest.mark.parametrize("note", [b"\xff", b"", b'{digest} "\xc3\xa9"'])
def test_a_damaged_note_beside_the_copy_is_none(service: Service, body: bytes, tmp_path: Path, note: bytes) -> None:
    service.body = body
    path = fetch_bundle(service.url, tmp_path / "cache")
    path.with_suffix(".etag").write_bytes(note.replace(b"{digest}", hashlib.sha256(body).hexdigest().encode()))
    assert fetch_bundle(service.url, tmp_path / "cache") == path
    assert service.seen == [(200, None), (200, None)]


def test_a_folder_that_takes_no_copy_is_named(service: Service, body: bytes, tmp_path: Path) -> None:
    service.body = body
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match=r"cannot keep what http.*: .*file.*") as caught:
        fetch_bundle(service.url, tmp_path / "file")
    assert "DEUTERON_HOME" in (caught.value.hint or "")


@pytest.mark.parametrize("place", ["write", "replace"])
def test_a_full_disk_is_like_a_service_that_is_away(
    service: Service, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Programs ended once the service had something new, though they had a copy."""
    service.body = body
    kept = fetch_bundle(service.url, tmp_path)
    before = sorted(tmp_path.iterdir())
    service.etag = '"2"'

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "of-this-attempt.part")

    with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")  # as in programs
        patch.setattr(*{"write": (tuned_module._Part, "write"), "replace": (Path, "replace")}[place], full)
        for _ in range(2):
            assert fetch_bundle(service.url, tmp_path) == kept and kept.read_bytes() == body
        with pytest.raises(BundleError, match="cannot keep what http.*: No space left"):
            fetch_bundle(service.url.replace("/v1/", "/v2/"), tmp_path)
    (warning,) = warned
    assert "No space left on device; the copy that is there is used" in str(warning.message)
    assert sorted(tmp_path.iterdir()) == before
    assert fetch_bundle(service.url, tmp_path) == kept and service.seen[-1] == (200, '"1"')


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_service_in_trouble_is_like_one_that_is_away(
    service: Service, body: bytes, tmp_path: Path, status: int
) -> None:
    """Such as behind a proxy while it restarts: every program that started then ended, though it had a copy."""
    service.status = status
    with pytest.raises(BundleError, match=rf"cannot fetch .*\({status}\)") as caught:
        fetch_bundle(service.url, tmp_path)
    assert "pass its path" in (caught.value.hint or "")
    service.status, service.body = 200, body
    copy = fetch_bundle(service.url, tmp_path)
    service.status, service.body = status, b"<html>Bad Gateway</html>"
    assert fetch_bundle(service.url, tmp_path) == copy and copy.read_bytes() == body


@pytest.mark.parametrize("status", [200, 204, 304])
def test_an_empty_answer_is_no_bundle(service: Service, body: bytes, tmp_path: Path, status: int) -> None:
    service.status = status
    with pytest.raises(BundleError, match=rf"is no bundle: the answer \({status}\) is empty"):
        fetch_bundle(service.url, tmp_path)
    assert not any(tmp_path.glob("*.bundle"))


def test_the_token_goes_to_the_service_that_is_named_and_to_no_other(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that asks for tokens refused every program."""
    monkeypatch.setenv("DEUTERON_TOKEN", "dtn_secret")
    seen: list[str | None] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization"))
        send(handler, 200, body)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization"))
        send(handler, 302, b"", location=other.url)

    with AnsweringServer(elsewhere) as other, AnsweringServer(answer) as server:
        assert fetch_bundle(server.url, tmp_path).read_bytes() == body
    assert seen == ["Bearer dtn_secret", None]


def test_problem_document_is_shown(service: Service, tmp_path: Path) -> None:
    service.status, service.body = 403, b'{"detail": "the token has no scope read"}'
    with pytest.raises(BundleError, match=r"answered: the token has no scope read \(403\)"):
        fetch_bundle(service.url, tmp_path)


def kernel() -> JITFunction:
    text = builtin_workload("layer_norm").kernel
    return JITFunction(KernelSource.from_text(text.source, text.name))


def test_files_where_only_trusted_keys_count(tmp_path: Path, make_record) -> None:  # type: ignore[no-untyped-def]
    key = SigningKey.generate()
    plain, signed = tmp_path / "plain", tmp_path / "signed"
    write_bundle(plain, [make_record({"n": 1})])
    write_bundle(signed, [make_record({"n": 1})], service="http://there", sign_with=key)
    tuned(kernel(), plain)
    tuned(kernel(), signed)
    with knobs.trusted_keys_only.scope(True):
        for path, says in ((plain, "is not signed"), (signed, "is not trusted here")):
            with pytest.raises(UntrustedBundle, match=says):
                tuned(kernel(), path)
            tuned(kernel(), path, allow_unsigned=True)
        KeyFolder(tmp_path / "home" / "keys").trust(key.public_key, "company")
        tuned(kernel(), signed)


def layer_norm_arguments(m: int, n: int) -> list[object]:
    x, v, r = (np.zeros(s, np.float32) for s in ((m, n), n, m))
    return [x, x.copy(), v, v, r, r.copy(), n, n, 1e-5]


def test_shape_is_read_from_arrays_and_scalars(make_record) -> None:  # type: ignore[no-untyped-def]
    jit = kernel()
    record = make_record(
        {"M": 6, "N": 32},
        kernel_hash=jit.source.hash,
        dims_from_arguments={"M": "x_ptr.shape[0]", "N": "n_cols"},
        dtype_argument="x_ptr",
    )
    launcher = tuned(jit, RecordIndex([record]))
    answer = launcher.answer(*layer_norm_arguments(6, 32))
    assert answer.match == "default"  # recorded on an H100, launched on this CPU
    assert f"the kernel was tuned for {record.device.key} (f32)" in answer.reason
    flat = layer_norm_arguments(6, 32)
    flat[0] = np.float32(3.0)
    with pytest.raises(LaunchError, match=r"'x_ptr' has no axis 0, which gives the size 'M'"):
        launcher.answer(*flat)
    for value in ("32", True, 32.0):
        other = layer_norm_arguments(6, 32)
        other[7] = value
        with pytest.raises(LaunchError, match=f"'n_cols' is {value!r}; it gives the size 'N'"):
            launcher.answer(*other)


def test_a_record_of_another_compiler_is_used_and_flagged(make_record, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The toolchain of a launch is the one that names its cached variant."""
    from deuteron.compiler import get_device
    from deuteron.compiler.runtime.variant import toolchain as definition

    jit, cpu = kernel(), get_device("cpu")
    record = make_record(
        {"M": 6, "N": 32},
        kernel_hash=jit.source.hash,
        device=DeviceFingerprint.of(cpu.properties),
        toolchain=current_toolchain(cpu),
        dims_from_arguments={"M": "x_ptr.shape[0]", "N": "n_cols"},
        dtype_argument="x_ptr",
    )
    index, arguments = RecordIndex([record]), layer_norm_arguments(6, 32)
    same = tuned(jit, index).answer(*arguments)
    assert (same.match, same.toolchain_differences) == ("exact", ())
    digest = definition.compiler_digest()
    monkeypatch.setattr(definition, "compiler_digest", lambda: "changed")
    other = tuned(jit, index).answer(*arguments)
    assert (other.match, other.config) == ("other_toolchain", record.config)
    assert f"compiler {digest}, here changed" in other.reason
    with pytest.raises(RecordNotFound, match="another toolchain"):
        tuned(jit, index, strict=True).answer(*arguments)


def test_launches_take_what_is_predicted(predictor) -> None:  # type: ignore[no-untyped-def]
    """A bundle may have a predictor and no record; it says where a launch's shape is found."""
    from deuteron.compiler import get_device

    jit, cpu = kernel(), get_device("cpu")
    text = json.dumps(predictor().ranking.to_json()).replace("BLOCK", "BLOCK_SIZE").replace('"w"', '"num_warps"')
    one = predictor(
        kernel_hash=jit.source.hash,
        device=DeviceFingerprint.of(cpu.properties),
        toolchain=current_toolchain(cpu),
        ranking=Ranking.from_json(json.loads(text)),
        dims_from_arguments={"M": "x_ptr.shape[0]", "N": "n_cols"},
        dtype_argument="x_ptr",
    )
    launcher = tuned(jit, RecordIndex([], [one]))
    arguments = layer_norm_arguments(70, 64)
    arguments[0][:] = np.random.default_rng(0).standard_normal((70, 64))  # type: ignore[index]
    arguments[2] = np.ones(64, np.float32)
    launcher[(70,)](*arguments, BLOCK_SIZE=16)
    answer = launcher.last_answer
    assert answer is not None and answer.match == "predicted"
    assert answer.config == {"BLOCK_SIZE": 64, "num_warps": 4} and answer.toolchain_differences == ()
    x = np.asarray(arguments[0], np.float64)
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(arguments[1], wanted, rtol=1e-4, atol=1e-4)
    assert launcher.bound((70,), *arguments, BLOCK_SIZE=16)().variant.constants["BLOCK_SIZE"] == 64
    with pytest.raises(RecordNotFound):
        tuned(jit, RecordIndex([], [one]), strict=True).answer(*arguments)


def test_bound_launches_take_the_stored_configuration(make_record) -> None:  # type: ignore[no-untyped-def]
    from deuteron.compiler import get_device

    cpu = get_device("cpu")
    jit = JITFunction(KernelSource.from_text(builtin_workload("vector_add").kernel.source, "vector_add_kernel"))
    record = make_record(
        {"n": 100},
        kernel_hash=jit.source.hash,
        device=DeviceFingerprint.of(cpu.properties),
        toolchain=current_toolchain(cpu),
        dims_from_arguments={"n": "x_ptr.shape[0]"},
        dtype_argument="x_ptr",
        config={"BLOCK_SIZE": 128},
    )
    launcher = tuned(jit, RecordIndex([record]))
    x, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    again = launcher.bound(lambda meta: (-(-100 // meta["BLOCK_SIZE"]),), x, x, out, 100)
    assert launcher.last_answer is not None and launcher.last_answer.match == "exact"
    made = again()
    np.testing.assert_array_equal(out, 2 * x)
    assert made is not None and made.variant is not None and made.variant.constants["BLOCK_SIZE"] == 128
    y = np.ones(100, np.float32)
    again.rebind(y_ptr=y)()
    np.testing.assert_array_equal(out, x + 1)


def test_record_without_dims_cannot_serve_launches(make_record) -> None:  # type: ignore[no-untyped-def]
    jit = kernel()
    index = RecordIndex([make_record({"M": 6}, kernel_hash=jit.source.hash)])
    with pytest.raises(LaunchError, match="do not say which argument gives the size 'M'"):
        tuned(jit, index)


TUPLES = """
import deuteron as triton
import deuteron.language as tl

@triton.jit
def scale(out, n, *terms, BLOCK: tl.constexpr = 4):
    i = tl.arange(0, BLOCK)
    tl.store(out[0] + i, tl.load(terms[0] + i, mask=i < n) * terms[1], mask=i < n)
"""


def test_star_arguments_and_tuples_are_launched(make_record) -> None:  # type: ignore[no-untyped-def]
    jit = JITFunction(KernelSource.from_text(TUPLES, "scale"))
    record = make_record({"N": 8}, kernel_hash=jit.source.hash, dims_from_arguments={"N": "n"}, dtype_argument=None)
    launcher = tuned(jit, RecordIndex([record]))
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    launcher[(1,)]((out,), 8, x, 3, BLOCK=8)
    np.testing.assert_array_equal(out, 3 * x)
    launcher.bound((1,), (out,), 8, x, 3, BLOCK=8).rebind((out,), 8, x, 5)()
    np.testing.assert_array_equal(out, 5 * x)
