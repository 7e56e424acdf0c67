"""``deuteron keys``, and commands that ask who signed a bundle: against services that listen, altered on the way."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from answering import AnsweringServer, send

from deuteron.server import ServiceStore
from deuteron.server.configs import put_record
from deuteron.tuner import read_bundle, write_bundle
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder


@pytest.fixture
def stocked(live_service: Callable[..., str], bundle: Path, tmp_path: Path) -> Callable[..., str]:
    """``stocked("name", **settings)``: a service that has the record of ``bundle``."""

    def start(name: str = "there", **fields: object) -> str:
        url = live_service(tmp_path / name, **fields)
        store = ServiceStore.open(f"sqlite:///{tmp_path / name / 'deuteron.db'}")
        with store.write() as tx:
            for record in read_bundle(bundle).records():
                put_record(tx, record, None)
        store.close()
        return url

    return start


class Tamperer(AnsweringServer):
    """Stands between client and service: answers with ``body``, announced as it is."""

    def __init__(self) -> None:
        self.body = b""
        super().__init__(
            lambda handler: send(handler, 200, self.body, etag=f'"{hashlib.sha256(self.body).hexdigest()}"')
        )


@pytest.fixture
def tamperer() -> Iterator[Tamperer]:
    with Tamperer() as made:
        yield made


def test_keys_are_made_shown_trusted_and_listed(run, home: Path):
    missing = run("keys", "show")
    assert missing.code == 2 and "deuteron keys create" in missing.err
    made = run("keys", "create")
    public = made.out.strip()
    assert made.code == 0 and public == KeyFolder(home / "keys").own().public_key  # type: ignore[union-attr]
    assert run("keys", "show").out == made.out
    again = run("keys", "create")
    assert again.code == 2 and "exists" in again.err and run("keys", "show").out == made.out
    other = SigningKey.generate()
    assert run("keys", "trust", other.public_key, "--name", "company").out == f"key {other.id} (company) is trusted\n"
    listed = run("keys", "list").out
    assert "this machine" in listed and [other.id, "company"] in [row.split()[:2] for row in listed.splitlines()]
    short = run("keys", "forget", other.id[:4])
    assert short.code == 2 and "keys list" in short.err
    assert run("keys", "forget", other.id[:10]).code == 0
    assert other.id not in run("keys", "list").out
    wrong = run("keys", "trust", "abc")
    assert wrong.code == 2 and "64 hexadecimal digits" in wrong.err
    wrong = run("keys", "trust", other.public_key, "--service", "tuner:8642")
    assert wrong.code == 2 and "'tuner:8642' is not the address of a service" in wrong.err


def test_a_key_is_forgotten_whatever_its_file_is_called(run, home: Path):
    """And the list goes on to say which service showed it."""
    key = SigningKey.generate()
    run("keys", "trust", key.public_key, "--name", "company", "--service", "HTTP://tuner:80/")
    assert [key.id, "company", "everything"] in [row.split()[:3] for row in run("keys", "list").out.splitlines()]
    folder = home / "keys" / "trusted"
    (folder / f"{key.id}.json").rename(folder / "company.json")
    assert run("keys", "forget", key.id).out == f"key {key.id} (company) is trusted no longer\n"
    assert KeyFolder(home / "keys").trusted() == []
    (row,) = [row.split() for row in run("keys", "list").out.splitlines() if key.id in row]
    assert row == [key.id, *["trusted", "no", "longer", "nothing"], "http://tuner"]


def test_a_file_in_the_place_of_the_folder(run, home: Path):
    home.mkdir()
    (home / "keys").write_text("")
    for command in (["create"], ["show"], ["list"], ["trust", "ab" * 32], ["forget", "ab" * 16]):
        refused = run("keys", *command)
        assert refused.code == 2 and f"{home / 'keys'} is a file, and should be a folder" in refused.err


def test_where_only_trusted_keys_count(run, stocked, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No file without a signature, and no first key of a service."""
    url, file = stocked(), tmp_path / "configs.bundle"
    monkeypatch.setenv("DEUTERON_TRUSTED_KEYS_ONLY", "1")
    for command in (["cache", "show", bundle], ["cache", "export", bundle], ["cache", "pull", "-o", file]):
        refused = run(*command, *(["--server", url] if "pull" in command else []))
        assert refused.code == 2 and "DEUTERON_TRUSTED_KEYS_ONLY is set; --allow-unsigned" in refused.err
    assert not file.exists() and run("cache", "show", bundle, "--allow-unsigned").code == 0
    own = KeyFolder(tmp_path / "there" / "keys").own()
    assert own is not None
    run("keys", "trust", own.public_key)
    assert run("cache", "pull", "-o", file, "--server", url).code == run("cache", "show", file).code == 0


def test_a_pull_trusts_the_first_key_and_no_other(run, stocked, tmp_path: Path):
    url, file = stocked(), tmp_path / "configs.bundle"
    server = ("-o", file, "--server", url)
    own = KeyFolder(tmp_path / "there" / "keys").own()
    assert own is not None
    pulled = run("cache", "pull", *server)
    assert pulled.code == 0, pulled.err
    assert f"signed by {own.id}, the first key of {url}, trusted from now on" in pulled.err
    assert f"signed by {own.id} ({url})" in run("cache", "pull", *server).err
    assert f"signed by {own.id} ({url})" in run("cache", "show", file).out
    for ask in (["lookup", "vector_add_kernel", "--shape", "n=65536", "--bundle"], ["export"]):
        assert run("cache", *ask, file).code == 0

    # The same records, signed by a key that the service got since then.
    before = file.read_bytes()
    write_bundle(tmp_path / "other", read_bundle(file).records(), service=url, sign_with=SigningKey.generate())
    (tmp_path / "there" / "keys" / "own.pem").unlink()
    from deuteron.server.bundles import signing_key
    from deuteron.server.settings import Settings

    replaced = signing_key(Settings(home=tmp_path / "there"))
    assert replaced is not None and replaced.id != own.id
    run("keys", "forget", own.id)
    for command in (["cache", "show", file], ["cache", "export", file], ["cache", "show", tmp_path / "other"]):
        refused = run(*command)
        assert refused.code == 2 and "is not trusted here" in refused.err and "--allow-unsigned" in refused.err
        assert run(*command, "--allow-unsigned").code == 0
    assert file.read_bytes() == before


def test_what_is_altered_on_the_way_never_takes_the_place_of_the_file(run, stocked, tamperer: Tamperer, tmp_path: Path):
    """A service whose key is known, and somebody between who changes what it sends; the ETag is always that of what
    is sent."""
    file, url = tmp_path / "configs.bundle", tamperer.url
    good = httpx.get(f"{stocked()}/v1/bundles/latest").content
    tamperer.body = good
    assert run("cache", "pull", "-o", file, "--server", url).code == 0
    head, *lines = good.splitlines(keepends=True)
    fields = json.loads(head)
    faster = lines[0].replace(b'"BLOCK_SIZE":', b'"BLOCK_SIZE":1')
    manifest = {**fields, "body_sha256": hashlib.sha256(faster).hexdigest()}

    def spelled(manifest: dict[str, object]) -> bytes:
        return json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    bare = {name: value for name, value in manifest.items() if name != "signature"}
    mine = SigningKey.generate()
    cases = {
        "is corrupt": head + faster,
        "was altered": spelled(manifest) + faster,
        "is not signed": spelled(bare) + faster,
        "has changed": spelled({**bare, "signature": mine.sign(spelled(bare)).to_json()}) + faster,
        "truncated": good[:-10],
    }
    for says, body in cases.items():
        tamperer.body = body
        refused = run("cache", "pull", "-o", file, "--server", url)
        assert (refused.code, refused.out) == (2, ""), says
        assert says in refused.err and "Traceback" not in refused.err
        assert file.read_bytes() == good
        assert list(tmp_path.glob(".configs*")) == []
    for says in ("is corrupt", "was altered"):
        tamperer.body = cases[says]
        assert run("cache", "pull", "-o", file, "--server", url, "--allow-unsigned").code == 2, "never, with any flag"
    tamperer.body = cases["is not signed"]
    assert run("cache", "pull", "-o", file, "--server", url, "--allow-unsigned").code == 0
    assert file.read_bytes() == tamperer.body


def test_a_service_on_this_machine_is_trusted_at_once(run, stocked, home: Path, tmp_path: Path):
    """The service keeps its data in the home of the client: nothing to trust."""
    url = stocked(home.name)
    pulled = run("cache", "pull", "-o", tmp_path / "b", "--server", url)
    assert pulled.code == 0 and "(this machine)" in pulled.err
    assert KeyFolder(home / "keys").trusted() == []


def test_a_service_without_a_key(run, stocked, tmp_path: Path):
    url, file = stocked(signing_key="none"), tmp_path / "b"
    assert not (tmp_path / "there" / "keys").exists()
    refused = run("cache", "pull", "-o", file, "--server", url)
    assert refused.code == 2 and "is not signed" in refused.err and not file.exists()
    assert run("cache", "pull", "-o", file, "--server", url, "--allow-unsigned").code == 0
    shown = run("cache", "show", file)
    assert shown.code == 2 and f"it came from a service ({url})" in shown.err
    assert run("cache", "show", file, "--allow-unsigned").code == 0


def test_a_key_of_a_file_signs_the_bundles_of_two_services(run, stocked, tmp_path: Path):
    """What services behind one address share. The same records are the same file but for the address that is in it."""
    run("keys", "create")
    key = KeyFolder(tmp_path / "home" / "keys")
    shared = tmp_path / "shared.pem"
    key.own_path.rename(shared)
    urls = [stocked(name, signing_key=str(shared)) for name in ("one", "two", "one")]
    bundles = [httpx.get(f"{url}/v1/bundles/latest").content for url in urls]
    signers = {json.loads(body.splitlines()[0])["signature"]["key"] for body in bundles}
    assert len(signers) == 1
    contents = []
    for body in bundles:
        manifest, *records = body.splitlines()
        own = {"service": None, "signature": None}
        contents.append(({**json.loads(manifest), **own}, records))
    assert contents[0] == contents[1] == contents[2]
    url = stocked("one", signing_key="none")
    assert "signature" not in json.loads(httpx.get(f"{url}/v1/bundles/latest").content.splitlines()[0])


def test_local_bundles_need_no_key_and_no_package(run, bundle: Path, monkeypatch: pytest.MonkeyPatch, home: Path):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    shown = run("cache", "show", bundle)
    assert shown.code == 0 and "is not signed, nobody vouches for it" in shown.out
    assert not (home / "keys").exists()
    refused = run("keys", "create")
    assert refused.code == 2 and "deuteron[keys]" in refused.err


def test_a_search_starts_from_bundles_that_are_trusted(run, bundle: Path, tmp_path: Path):
    key = SigningKey.generate()
    write_bundle(tmp_path / "b", read_bundle(bundle).records(), service="http://there", sign_with=key)
    tune = ("tune", "vector_add", "--shape", "n=4096", "--out", tmp_path / "out", "--from", tmp_path / "b")
    refused = run(*tune)
    assert refused.code == 2 and "is not trusted here" in refused.err and not (tmp_path / "out").exists()
    run("keys", "trust", key.public_key)
    # The bundle is taken now: what ends the command is the source after it.
    after = run(*tune, "--from", tmp_path / "none")
    assert after.code == 2 and "none: cannot be read" in after.err
