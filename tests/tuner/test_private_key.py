"""The private key that a service signs with: private, one for all of its processes, and never replaced."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from deuteron.server import Settings
from deuteron.server.bundles import signing_key
from deuteron.tuner.errors import KeyFileError
from deuteron.tuner.records.trust import KeyFolder, read_private_key


def test_the_private_key_is_private_and_never_replaced(keys: KeyFolder):
    key = keys.create()
    assert stat.S_IMODE(keys.own_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o700
    with pytest.raises(KeyFileError, match="exists"):
        keys.create()
    assert keys.own_or_new().public_key == key.public_key
    keys.own_path.chmod(0o644)
    with pytest.raises(KeyFileError, match="everybody may read"):
        keys.own()
    assert [path.name for path in keys.path.iterdir()] == ["own.pem"]


def _make(folder: Path, results: multiprocessing.SimpleQueue[str]) -> None:
    results.put(KeyFolder(folder).own_or_new().public_key)


def test_processes_that_start_at_once_agree_on_one_key(keys: KeyFolder):
    context = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[str] = context.SimpleQueue()
    started = [context.Process(target=_make, args=(keys.path, results)) for _ in range(4)]
    for process in started:
        process.start()
    made = {results.get() for _ in started}
    for process in started:
        process.join()
    assert made == {keys.own().public_key}  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_is_no_private_key(tmp_path: Path, text: bytes):
    path = tmp_path / "key.pem"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=r"key\.pem is not an ed25519 private key"):
        read_private_key(path)
    with pytest.raises(KeyFileError, match="No such file"):
        read_private_key(tmp_path / "none")
    settings = Settings(home=tmp_path, signing_key=str(tmp_path / "none"))
    with pytest.raises(KeyFileError, match=r"No such file[^\0]*hint: DEUTERON_SIGNING_KEY names"):
        signing_key(settings)
