"""Whose signatures count: of files, and of what a server sends. Rows of the table in docs/config-bundles.md."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from signed_bundles import THERE, Write, refuses

from deuteron.compiler import knobs
from deuteron.tuner.errors import UntrustedBundle
from deuteron.tuner.records import Bundle, key_folder, read_bundle
from deuteron.tuner.records.signature import SigningKey, key_id
from deuteron.tuner.records.trust import KeyFolder, admit_file, admit_pulled, server_address


def test_files(write: Write, keys: KeyFolder):
    """The rows of files."""
    mine, known, strange = keys.create(), SigningKey.generate(), SigningKey.generate()
    keys.trust(known.public_key, "company")
    local = admit_file(read_bundle(write("local", service="local")), keys)
    assert local.key is None and "is not signed, nobody vouches for it" in local.reason
    assert admit_file(read_bundle(write("mine", mine)), keys).reason == f"signed by {mine.id} (this machine)"
    assert (
        admit_file(read_bundle(write("known", known)), keys).reason == f"signed by {key_id(known.public_key)} (company)"
    )
    for name, key, says in (("bare", None, "came from a service"), ("strange", strange, "is not trusted here")):
        bundle = read_bundle(write(name, key))
        with pytest.raises(UntrustedBundle, match=says) as refused:
            admit_file(bundle, keys)
        assert "--allow-unsigned" in str(refused.value.hint)
        admission = admit_file(bundle, keys, allow_unsigned=True)
        assert admission.key is None and says in admission.reason
    assert [key.name for key in keys.trusted()] == ["company"], "taking a file anyway trusts nobody"


def test_what_a_server_sends(write: Write, keys: KeyFolder):
    """The rows of downloads: first use, the same key again, another key, none; two trusted keys in a rotation."""
    old, new, elsewhere = (SigningKey.generate() for _ in range(3))
    first, again, changed, bare = (
        read_bundle(write(name, key)) for name, key in (("1", old), ("2", old), ("3", new), ("4", None))
    )
    for bundle, says in ((bare, "is not signed"),):
        with pytest.raises(UntrustedBundle, match=says):
            admit_pulled(bundle, THERE, keys)
    assert admit_pulled(bare, THERE, keys, allow_unsigned=True).key is None
    assert admit_pulled(changed, THERE, keys, allow_unsigned=True).key is None and not keys.trusted()

    shown = admit_pulled(first, f"{THERE}/v1/bundles/latest", keys)
    assert (shown.key, shown.first_use) == (old.public_key, True) and old.id in shown.reason
    assert admit_pulled(again, THERE, keys).first_use is False
    assert admit_file(first, keys).key == old.public_key, "what was pulled can be used"
    for bundle, says in (
        (changed, f"has changed: it was {old.id}, this bundle is signed by {new.id}"),
        (bare, "not signed"),
    ):
        with pytest.raises(UntrustedBundle, match=says):
            admit_pulled(bundle, THERE, keys)
    # The key of one server says nothing of another, whose own first key counts.
    third = read_bundle(write("5", elsewhere))
    assert admit_pulled(third, "http://elsewhere", keys).first_use
    with pytest.raises(UntrustedBundle, match="has changed"):
        admit_pulled(third, THERE, keys)
    assert "has changed" in admit_pulled(third, THERE, keys, allow_unsigned=True).reason

    keys.trust(new.public_key, "from June on")
    assert admit_pulled(changed, THERE, keys).reason == f"signed by {new.id} (from June on)"
    assert admit_pulled(again, THERE, keys).key == old.public_key, "both are trusted while keys rotate"
    keys.forget(next(key for key in keys.trusted() if key.public_key == old.public_key))
    with pytest.raises(UntrustedBundle, match="is not trusted here"):
        admit_file(again, keys)
    assert admit_pulled(changed, THERE, keys).key == new.public_key
    with pytest.raises(UntrustedBundle, match=f"signed by {old.id}, which is trusted no longer"):
        admit_pulled(again, THERE, keys)


def test_a_service_that_showed_a_key_that_counts_has_no_first_one_any_more(write: Write, tmp_path: Path):
    """However that key came to count, and whatever became of it."""
    old, new, strange = (SigningKey.generate() for _ in range(3))
    of_old, of_new, of_strange = (read_bundle(write(str(n), key)) for n, key in enumerate((old, new, strange)))

    confirmed = KeyFolder(tmp_path / "confirmed")
    assert admit_pulled(of_old, THERE, confirmed).first_use
    confirmed.trust(old.public_key, "confirmed by a person")
    assert refuses(of_strange, confirmed)

    rotated = KeyFolder(tmp_path / "rotated")
    admit_pulled(of_old, THERE, rotated)
    rotated.trust(new.public_key, "from June on")
    rotated.forget(rotated.trusted()[0])
    assert [key.id for key in rotated.trusted()] == [new.id]
    assert refuses(of_strange, rotated) and refuses(of_old, rotated)
    assert admit_pulled(of_new, THERE, rotated).first_use is False
    rotated.forget(rotated.trusted()[0])
    assert refuses(of_strange, rotated) and rotated.shown(THERE) == (old.id, new.id)

    by_hand = KeyFolder(tmp_path / "by hand")
    by_hand.trust(old.public_key, "company")
    assert admit_pulled(of_old, THERE, by_hand).first_use is False
    assert refuses(of_strange, by_hand) and by_hand.services() == {old.id: (THERE,)}

    named = KeyFolder(tmp_path / "named")
    named.trust(old.public_key, "company", service=THERE)
    assert refuses(of_strange, named), "before the first download"
    assert admit_pulled(of_strange, "http://elsewhere", named).first_use

    own = KeyFolder(tmp_path / "own")
    admit_pulled(read_bundle(write("of own", own.create())), THERE, own)
    assert refuses(of_strange, own)


def test_an_altered_file_without_its_signature(write: Write, keys: KeyFolder):
    """Nothing in a file shows that it had a signature: it is taken, nobody vouches for it, and where only trusted keys
    count it is refused."""
    known, strange = SigningKey.generate(), SigningKey.generate()
    keys.trust(known.public_key, "company")
    path = write("b", known)
    head, *lines = path.read_bytes().splitlines(keepends=True)
    body = b"".join(reversed([line.replace(b'"n":1', b'"n":3') for line in lines]))
    fields = {**json.loads(head), "service": "local", "body_sha256": hashlib.sha256(body).hexdigest()}
    del fields["signature"]
    path.write_bytes(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n" + body)
    stripped = read_bundle(path)
    assert "nobody vouches for it" in admit_file(stripped, keys).reason
    with knobs.trusted_keys_only.scope(True):
        with pytest.raises(UntrustedBundle, match="is not signed") as refused:
            admit_file(stripped, keys)
        assert "DEUTERON_TRUSTED_KEYS_ONLY" in str(refused.value.hint)
        assert admit_file(stripped, keys, allow_unsigned=True).key is None
        assert admit_file(read_bundle(write("known", known)), keys).key == known.public_key
        # No first use either, and what is refused is not remembered.
        assert refuses(read_bundle(write("strange", strange)), keys) and keys.shown(THERE) == ()
        assert admit_pulled(read_bundle(path.with_name("known")), THERE, keys).key == known.public_key


def together(monkeypatch: pytest.MonkeyPatch, *calls: Callable[[], object]) -> None:
    """Makes the calls at once, each of which waits before its first write until all have read, or for 0.1 s."""
    write, barrier = key_folder.write_whole, threading.Barrier(len(calls))

    def slowly(*arguments: Any, **options: Any) -> None:
        with suppress(threading.BrokenBarrierError):
            barrier.wait(0.1)
        write(*arguments, **options)

    monkeypatch.setattr(key_folder, "write_whole", slowly)
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            with suppress(UntrustedBundle):
                done.result()
    monkeypatch.undo()


def test_what_is_trusted_at_once_is_trusted_together(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, other = SigningKey.generate(), SigningKey.generate()
    of_one, of_other = read_bundle(write("1", one)), read_bundle(write("2", other))

    def pull(bundle: Bundle, keys: KeyFolder, server: str = THERE) -> Callable[[], object]:
        return lambda: admit_pulled(bundle, server, KeyFolder(keys.path))

    services = KeyFolder(tmp_path / "services")
    together(monkeypatch, pull(of_one, services), pull(of_one, services, "http://second"))
    assert set(services.trusted()[0].servers or ()) == {THERE, "http://second"}
    assert services.services() == {one.id: ("http://second", THERE)}

    by_hand = KeyFolder(tmp_path / "by hand")
    together(monkeypatch, pull(of_one, by_hand), lambda: by_hand.trust(one.public_key, "by hand"))
    assert by_hand.trusted()[0].servers is None and by_hand.trusted()[0].name == "by hand"

    first = KeyFolder(tmp_path / "first")
    together(monkeypatch, pull(of_one, first), pull(of_other, first))
    assert len(first.trusted()) == 1


def test_a_key_that_two_servers_showed_counts_for_both(keys: KeyFolder, write: Write):
    key = SigningKey.generate()
    bundle = read_bundle(write("b", key))
    for server in (THERE, "http://second"):
        assert admit_pulled(bundle, server, keys).first_use
    (trusted,) = keys.trusted()
    assert set(trusted.servers or ()) == {THERE, "http://second"}
    assert keys.trust(key.public_key, "company").servers is None
    assert keys.trust_first(key.public_key, "http://third")
    assert keys.trusted()[0].servers is None, "a person's word stays"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://There:8642/", THERE),
        ("http://there:8642/v1/bundles/latest?kernel=x", THERE),
        ("https://user:secret@tuner/", "https://tuner"),
        ("http://tuner:80", "http://tuner"),
        ("HTTP://TUNER.:80/v1", "http://tuner"),
        ("https://tuner:443/", "https://tuner"),
        ("https://tuner:80", "https://tuner:80"),
        ("http://tuner:08642", "http://tuner:8642"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://[FE80::1]:8642", "http://[fe80::1]:8642"),
        ("http://tuner:x", "http://tuner:x"),
    ],
)
def test_addresses_of_servers(url: str, address: str):
    assert server_address(url) == server_address(server_address(url)) == address
