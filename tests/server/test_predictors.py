"""Predictions over HTTP and in the service's bundles, from a file in its home."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deuteron.server import Settings
from deuteron.server.configs import put_record
from deuteron.server.predictors import FILE_NAME, Predictors
from deuteron.tuner import ConfigRecord, DeviceFingerprint, write_bundle
from deuteron.tuner.records import Bundle, Predictor, read_bundle

CPU = DeviceFingerprint("cpu", "test")
Maker = Callable[..., Predictor]


def publish(path: Path, *predictors: Predictor) -> None:
    """Put a bundle of predictors where the service looks, newer than any before."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    write_bundle(path, [], predictors=predictors)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def look(client: TestClient, shape: str, **changes: str) -> dict[str, Any]:
    parameters = {"kernel": "a" * 64, "device": "cpu/test", "shape": shape, **changes}
    response = client.get("/v1/configs/lookup", params=parameters)
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.fixture
def known(client: TestClient, make_record: Callable[..., ConfigRecord]) -> ConfigRecord:
    """A record of M=64,N=64."""
    record = make_record({"M": 64, "N": 64}, block=64)
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        put_record(tx, record, None)
    return record


def test_a_file_in_the_home_predicts(
    client: TestClient, settings: Settings, known: ConfigRecord, predictor: Maker
) -> None:
    context = client.app.state.context  # type: ignore[attr-defined]
    now = 5.0
    context.lookups._clock = lambda: now
    asked = {"kernel": known.kernel_hash, "device": known.device.key, "dtype": known.dtype}
    assert look(client, "M=96,N=64", **asked)["match"] == "nearest_shape"
    made = predictor(kernel_hash=known.kernel_hash, device=known.device, dtype=known.dtype)
    publish(settings.home / FILE_NAME, made)
    now += 2
    for _ in range(2):
        answer = look(client, "M=96,N=64", **asked)
        assert (answer["match"], answer["config"], answer["record"]) == ("predicted", {"BLOCK": 64, "w": 4}, None)
        assert answer["expected_loss"] == pytest.approx(1 / 0.97 - 1) and "predicted from 40 trials" in answer["reason"]
    exact = look(client, "M=64,N=64", **asked)
    assert (exact["match"], exact["expected_loss"]) == ("exact", None)
    batch = client.post("/v1/configs/lookup", json={"lookups": [{**asked, "shape": {"M": 20, "N": 64}}]}).json()
    assert batch["answers"][0]["config"] == {"BLOCK": 16, "w": 4}
    (settings.home / FILE_NAME).unlink()
    now += 2
    assert look(client, "M=96,N=64", **asked)["match"] == "nearest_shape"


def test_bundles_carry_predictors(
    client: TestClient, settings: Settings, known: ConfigRecord, predictor: Maker, tmp_path: Path
) -> None:
    def pull(**parameters: str) -> Path:
        path = tmp_path / "pulled"
        path.write_bytes(
            client.get("/v1/bundles/latest", params=parameters, headers={"Accept-Encoding": "identity"}).content
        )
        return path

    assert read_bundle(pull()).manifest.schema == 1
    one = predictor(kernel_hash=known.kernel_hash, device=known.device)
    other = predictor(kernel_hash="cd" * 32)
    publish(settings.home / FILE_NAME, one, other)
    whole = read_bundle(pull())
    assert list(whole.predictors()) == sorted([one, other], key=lambda p: p.key)
    assert list(whole.records()) == [known]
    narrow = read_bundle(pull(kernel=known.kernel_hash))
    assert list(narrow.predictors()) == [one] and narrow.manifest.kernel_hash == known.kernel_hash


def test_a_damaged_file_is_logged_and_what_was_known_stays(
    tmp_path: Path, predictor: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE_NAME
    held = Predictors(path)
    assert (held.version(), held.of()) == (0, [])
    publish(path, predictor())
    assert (held.version(), held.of()) == (1, [predictor()])
    assert held.of("ab" * 32) == [predictor()] and held.of("cd" * 32) == [] and held.of(None, "cpu/test") == []
    before = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-10])
    os.utime(path, ns=(before + 10**9, before + 10**9))
    assert (held.version(), held.of()) == (1, [predictor()])
    assert caplog.text.count("predictors are not read") == 1, "it is read once, though asked for twice"
    assert "truncated" in caplog.text


def test_nobody_waits_while_the_file_is_read(tmp_path: Path, predictor: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    held = Predictors(path)
    publish(path, predictor())
    before = held.version()
    reading, go_on = threading.Event(), threading.Event()

    def slowly(path: Path) -> Bundle:
        reading.set()
        assert go_on.wait(30)
        return read_bundle(path)

    monkeypatch.setattr("deuteron.server.predictors.read_bundle", slowly)
    publish(path, predictor(), predictor(dtype="f16"))
    reader = threading.Thread(target=held.version)
    reader.start()
    assert reading.wait(30)
    asked = ThreadPoolExecutor(1)
    assert asked.submit(lambda: (held.version(), len(held.of()))).result(10) == (before, 1)
    go_on.set()
    reader.join(30)
    assert held.version() == before + 1 and len(held.of()) == 2
