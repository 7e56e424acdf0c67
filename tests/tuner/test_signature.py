"""Signatures of bundles: what they cover, and whose count. Every row of the table in docs/config-bundles.md."""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deuteron.compiler import knobs
from deuteron.compiler.errors import MissingExtra
from deuteron.server import Settings
from deuteron.server.bundles import signing_key
from deuteron.tuner.errors import BundleError, KeyFileError, TunerError, UntrustedBundle
from deuteron.tuner.records import Bundle, Manifest, key_folder, read_bundle, write_bundle
from deuteron.tuner.records.signature import CONTEXT, SigningKey, key_id, signer_of
from deuteron.tuner.records.trust import KeyFolder, admit_file, admit_pulled, read_private_key, server_address

THERE = "http://there:8642"
Write = Callable[..., Path]


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "home" / "keys")


@pytest.fixture
def write(tmp_path: Path, make_record) -> Write:  # type: ignore[no-untyped-def]
    """``write("name", key)``: a bundle of two records, signed with the key."""

    def build(
        name: str, key: SigningKey | None = None, *, service: str = THERE, sizes: tuple[int, ...] = (1, 2)
    ) -> Path:
        write_bundle(tmp_path / name, [make_record({"n": n}) for n in sizes], service=service, sign_with=key)
        return tmp_path / name

    return build


def signer(path: Path) -> str | None:
    """Who signed a file, as a reader of it finds out."""
    bundle = read_bundle(path)
    return signer_of(bundle.head, str(path))


def test_signatures_are_those_of_rfc_8032(tmp_path: Path):
    """Test 1 of its section 7.1 (the key), and OpenSSL's verdict on a signature of ours."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    pem = base64.b64encode(bytes.fromhex("302e020100300506032b657004220420") + seed).decode()
    text = f"-----BEGIN PRIVATE KEY-----\n{pem}\n-----END PRIVATE KEY-----\n".encode()
    key = SigningKey.from_pem(text, tmp_path)
    assert key.public_key == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert SigningKey.from_pem(key.to_pem(), tmp_path).public_key == key.public_key
    openssl = shutil.which("openssl")
    if openssl is None:
        return
    (tmp_path / "key").write_bytes(text)
    (tmp_path / "message").write_bytes(CONTEXT + b"line\n")
    command = [openssl, "pkeyutl", "-sign", "-rawin", "-inkey", tmp_path / "key", "-in", tmp_path / "message"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.hex() == key.sign(b"line\n").value


def test_a_signed_bundle_is_what_it_was_and_one_without_reads_as_before(write: Write):
    key = SigningKey.generate()
    signed, plain = write("signed", key), write("plain")
    assert signer(signed) == key.public_key and signer(plain) is None
    shapes = [[record.shape for record in read_bundle(path).records()] for path in (signed, plain)]
    assert shapes[0] == shapes[1] == [{"n": 1}, {"n": 2}]
    assert "signature" not in json.loads(plain.read_bytes().splitlines()[0])  # what older versions wrote, too


def test_no_byte_of_a_signed_bundle_is_free(write: Write):
    """One bit of every byte flipped, the file cut at every place, lines swapped, doubled and left out."""
    key = SigningKey.generate()
    path = write("b", key)
    whole = path.read_bytes()
    draw = random.Random(5)
    head, *lines = whole.splitlines(keepends=True)
    # Hashing the rest shows each of its bytes alike: all of line 1, and every seventh byte after it.
    places = [*range(len(head)), *range(len(head), len(whole), 7)]
    flipped = [whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :] for at in places]
    cut = [whole[:at] for at in range(0, len(whole), 11)]
    swapped = [b"".join([head, *others]) for others in (lines[::-1], [*lines, lines[0]], lines[:1], [*lines, b"{}\n"])]
    capitals = head.replace(key.public_key.encode(), key.public_key.upper().encode()) + b"".join(lines)
    spaced = head.replace(b",", b", ", 1) + b"".join(lines)
    doubled = head.replace(b'{"', b'{"service":"x","', 1) + b"".join(lines)
    for altered in [*flipped, *cut, *swapped, capitals, spaced, doubled]:
        assert altered != whole
        path.write_bytes(altered)
        try:
            found = signer(path)
        except TunerError:
            continue
        assert found is None, altered[:400]
    path.write_bytes(whole)
    assert signer(path) == key.public_key


def test_a_signature_of_another_bundle_does_not_count(write: Write, keys: KeyFolder):
    """An older signature of the same key, and one of another key with the name of a trusted one."""
    key, other = SigningKey.generate(), SigningKey.generate()
    keys.trust(key.public_key, "company")
    older, newer, strange = write("older", key, sizes=(1,)), write("newer", key), write("strange", other)
    taken = json.loads(older.read_bytes().splitlines()[0])["signature"]
    forged = {**json.loads(strange.read_bytes().splitlines()[0])["signature"], "key": key.public_key}
    for path, signature in ((newer, taken), (strange, forged)):
        head, *lines = path.read_bytes().splitlines(keepends=True)
        line = json.dumps({**json.loads(head), "signature": signature}, sort_keys=True, separators=(",", ":"))
        path.write_bytes(line.encode() + b"\n" + b"".join(lines))
        for admit in (
            lambda bundle, allow: admit_file(bundle, keys, allow_unsigned=allow),
            lambda bundle, allow: admit_pulled(bundle, THERE, keys, allow_unsigned=allow),
        ):
            for allow in (False, True):
                with pytest.raises(UntrustedBundle, match="was altered"):
                    admit(read_bundle(path), allow)


def test_what_later_versions_add_is_signed(write: Write):
    """Members of the manifest that this version does not know."""
    path, key = write("b"), SigningKey.generate()
    head, *lines = path.read_bytes().splitlines(keepends=True)
    fields = {**json.loads(head), "later": 0}

    def publish() -> None:
        path.write_bytes(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n" + b"".join(lines))

    publish()
    fields["signature"] = key.sign(path.read_bytes().splitlines(keepends=True)[0]).to_json()
    publish()
    assert signer(path) == key.public_key
    fields["later"] = 1
    publish()
    with pytest.raises(BundleError):
        signer(path)


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


def refuses(bundle: Bundle, keys: KeyFolder, server: str = THERE) -> bool:
    """Whether a download is refused, and nothing was trusted by asking."""
    before = keys.trusted()
    try:
        admit_pulled(bundle, server, keys)
    except UntrustedBundle:
        return keys.trusted() == before
    return False


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


@pytest.mark.parametrize("then", ["trust", "forget"])
def test_a_folder_of_an_older_version(write: Write, keys: KeyFolder, then: str):
    """It has no list of services; addresses in it are spelled in other ways."""
    known, strange = SigningKey.generate(), SigningKey.generate()
    of_known, of_strange = read_bundle(write("1", known)), read_bundle(write("2", strange))
    (keys.path / "trusted").mkdir(parents=True)
    (keys.path / "trusted" / f"{known.id}.json").write_text(
        json.dumps(
            {"public_key": known.public_key, "name": "x", "added_at": "2026", "servers": ["http://old:80", THERE]}
        )
    )
    assert keys.shown(THERE) == (known.id,)
    assert refuses(of_strange, keys) and refuses(of_strange, keys, "http://old/")
    assert admit_pulled(of_known, "http://old", keys).first_use is False
    if then == "trust":
        keys.trust(known.public_key, "confirmed")
    else:
        keys.forget(keys.trusted()[0])
    assert refuses(of_strange, keys) and refuses(of_strange, keys, "http://old")


def test_a_folder_that_nobody_may_write_still_admits_whom_it_trusts(
    write: Write, keys: KeyFolder, monkeypatch: pytest.MonkeyPatch
):
    known, strange = SigningKey.generate(), SigningKey.generate()
    keys.trust(known.public_key, "company")
    of_known, of_strange = read_bundle(write("1", known)), read_bundle(write("2", strange))

    opened = os.open

    def refuse(path: str, flags: int, *rest: int, **named: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest, **named)

    monkeypatch.setattr("deuteron.tuner.records.key_folder.os.open", refuse)
    assert admit_pulled(of_known, THERE, keys).key == known.public_key
    with pytest.raises(KeyFileError, match="Permission denied"):
        admit_pulled(of_strange, THERE, keys)


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


@pytest.mark.parametrize("command", ["forget", "trust"])
def test_files_of_keys_that_have_other_names(keys: KeyFolder, command: str):
    """As somebody who copies them by hand names them; two of one key."""
    key = SigningKey.generate()
    keys.trust(key.public_key, "x")
    file = keys.path / "trusted" / f"{key.id}.json"
    (file.parent / "a copy.json").write_bytes(file.read_bytes())
    file.rename(file.with_name("company.json"))
    (trusted,) = keys.trusted()
    if command == "forget":
        keys.forget(trusted)
        assert keys.trusted() == [] and list(file.parent.iterdir()) == []
    else:
        keys.trust(key.public_key, "y")
        assert [path.name for path in file.parent.iterdir()] == [file.name] and keys.trusted()[0].name == "y"


@pytest.mark.parametrize("by_hand", ["first", "second", "none"])
def test_two_files_of_one_key_count_both(keys: KeyFolder, by_hand: str):
    """For every service that either names, or for everything."""
    (keys.path / "trusted").mkdir(parents=True)
    for number, name in enumerate(("first", "second")):
        fields: dict[str, object] = {
            "public_key": "00" * 32,
            "name": name,
            "added_at": str(number),
            "servers": [f"http://{name}"],
        }
        if name == by_hand:
            fields["servers"] = None
        (keys.path / "trusted" / f"{name}.json").write_text(json.dumps(fields))
    (key,) = keys.trusted()
    assert key.name == "first"
    assert key.servers == (("http://first", "http://second") if by_hand == "none" else None)


@pytest.mark.parametrize("where", ["", "trusted", "services.json", "trusted/x.json"])
def test_a_folder_of_keys_that_is_none(keys: KeyFolder, where: str):
    """What is wrong is said, and no bundle is taken meanwhile."""
    path = keys.path / where
    path.parent.mkdir(parents=True)
    path.write_text("[]")
    for ask in (lambda: keys.trust("00" * 32, "x"), keys.services):
        with pytest.raises(KeyFileError) as refused:
            ask()
        says = "expected an object" if path.suffix else "is a file, and should be a folder with keys"
        assert says in refused.value.message and str(path) in refused.value.message
    if not where:
        for make in (keys.create, keys.own_or_new, keys.own):
            with pytest.raises(KeyFileError, match="is a file"):
                make()


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


def test_without_the_package(write: Write, keys: KeyFolder, monkeypatch: pytest.MonkeyPatch):
    """Unsigned files need nothing; a signature names the extra."""
    local, signed = write("local", service="local"), write("signed", SigningKey.generate())
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert admit_file(read_bundle(local), keys).key is None
    assert read_bundle(signed).manifest.count == 2
    for check in (lambda: admit_file(read_bundle(signed), keys), keys.create):
        with pytest.raises(MissingExtra, match=r"deuteron\[keys\]"):
            check()


def test_a_signature_of_the_wrong_form(write: Write):
    path = write("b")
    head, *lines = path.read_bytes().splitlines(keepends=True)
    for signature in (7, {}, {"key": "00", "value": "00"}, {"key": "0" * 64, "value": "0" * 128, "more": 1}):
        line = json.dumps({**json.loads(head), "signature": signature}, sort_keys=True, separators=(",", ":"))
        path.write_bytes(line.encode() + b"\n" + b"".join(lines))
        with pytest.raises(BundleError, match="signature"):
            read_bundle(path)
    assert Manifest.from_json(json.loads(head)).signature is None
