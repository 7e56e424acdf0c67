"""Signatures of bundles: what they cover, and whose count. Every row of the table in docs/config-bundles.md."""

from __future__ import annotations

import base64
import json
import multiprocessing
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deuteron.compiler.errors import MissingExtra
from deuteron.tuner.errors import BundleError, KeyFileError, TunerError, UntrustedBundle
from deuteron.tuner.records import Manifest, read_bundle, write_bundle
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
    assert (local.key, local.reason) == (None, "not signed, written without a service")
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

    keys.trust(new.public_key, "from June on")
    assert admit_pulled(changed, THERE, keys).reason == f"signed by {new.id} (from June on)"
    assert admit_pulled(again, THERE, keys).key == old.public_key, "both are trusted while keys rotate"
    keys.forget(next(key for key in keys.trusted() if key.public_key == old.public_key))
    with pytest.raises(UntrustedBundle, match="is not trusted here"):
        admit_file(again, keys)
    assert admit_pulled(changed, THERE, keys).key == new.public_key


def test_a_key_that_two_servers_showed_counts_for_both(keys: KeyFolder, write: Write):
    key = SigningKey.generate()
    bundle = read_bundle(write("b", key))
    for server in (THERE, "http://second"):
        assert admit_pulled(bundle, server, keys).first_use
    (trusted,) = keys.trusted()
    assert set(trusted.servers or ()) == {THERE, "http://second"}
    assert keys.trust(key.public_key, "company").servers is None
    assert keys.trust(key.public_key, "x", server="http://third").servers is None, "a person's word stays"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://There:8642/", THERE),
        ("http://there:8642/v1/bundles/latest?kernel=x", THERE),
        ("https://user:secret@tuner/", "https://tuner"),
    ],
)
def test_addresses_of_servers(url: str, address: str):
    assert server_address(url) == address


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
