"""The folder of trusted keys: of an older version, read only, filled by hand, or none at all."""

from __future__ import annotations

import json
import os

import pytest
from signed_bundles import THERE, Write, refuses

from deuteron.tuner.errors import KeyFileError
from deuteron.tuner.records import read_bundle
from deuteron.tuner.records.signature import SigningKey
from deuteron.tuner.records.trust import KeyFolder, admit_pulled


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
