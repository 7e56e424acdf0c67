"""Signatures of bundles: what they cover. Rows of the table in docs/config-bundles.md."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from signed_bundles import THERE, Write, signer

from deuteron.compiler.errors import MissingExtra
from deuteron.tuner.errors import BundleError, TunerError, UntrustedBundle
from deuteron.tuner.records import Manifest, read_bundle
from deuteron.tuner.records.signature import CONTEXT, SigningKey
from deuteron.tuner.records.trust import KeyFolder, admit_file, admit_pulled


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
