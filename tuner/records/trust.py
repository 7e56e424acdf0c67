"""Whose bundles this machine takes: its own key, keys that a person trusts, and those that servers showed first.

The rules, row by row, are the table of docs/config-bundles.md ("Signatures").
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..codec import Document, canonical_json, decode
from ..errors import KeyFileError, UntrustedBundle
from ..trial import utc_now
from .bundle import Bundle
from .signature import PublicKey, SigningKey, key_id, signer_of

#: What a bundle that no service wrote says in its manifest.
LOCAL = "local"

_OWN = "own.pem"
_TRUSTED = "trusted"
_ANYWAY = "--allow-unsigned takes it all the same"


class TrustedKey(Document, frozen=True):
    """``servers``: the addresses that showed this key first; None for one that a person trusts, wherever it is met."""

    noun: ClassVar[str] = "trusted key"

    public_key: PublicKey
    name: str
    added_at: str
    servers: tuple[str, ...] | None = None

    @property
    def id(self) -> str:
        """The fingerprint."""
        return key_id(self.public_key)


class KeyFolder:
    """The keys of a machine: ``own.pem``, private, and ``trusted/ID.json``. Files appear whole or not at all.

    Every method raises :class:`KeyFileError` for a file that cannot be read or written, or is none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def own_path(self) -> Path:
        """Where the private key is."""
        return self.path / _OWN

    def own(self) -> SigningKey | None:
        """The key that this machine signs with, None where there is none."""
        return read_private_key(self.own_path) if self.own_path.exists() else None

    def create(self) -> SigningKey:
        """Make the machine's key. Of two who do so at once one succeeds."""
        key = SigningKey.generate()
        try:
            _write(self.own_path, key.to_pem(), os.link)
        except FileExistsError:
            raise KeyFileError(
                f"{self.own_path} exists", hint="move it away to make another; clients then have to trust that one"
            ) from None
        except OSError as error:
            raise _unusable(self.own_path, error) from None
        return key

    def own_or_new(self) -> SigningKey:
        """The machine's key, made if there is none."""
        found = self.own()
        if found is not None:
            return found
        try:
            return self.create()
        except KeyFileError:
            # Another process may have made it since we looked.
            found = self.own()
            if found is None:
                raise
            return found

    def trusted(self) -> list[TrustedKey]:
        """All trusted keys, oldest first."""
        folder = self.path / _TRUSTED
        try:
            found = [decode(path.read_bytes(), TrustedKey, str(path)) for path in folder.glob("*.json")]
        except OSError as error:
            raise _unusable(folder, error) from None
        return sorted(found, key=lambda key: (key.added_at, key.id))

    def trust(self, public_key: str, name: str, *, server: str | None = None) -> TrustedKey:
        """Trust a key: everywhere, or, as the first that ``server`` showed, from there and in files."""
        known = next((key for key in self.trusted() if key.public_key == public_key), None)
        if known is None:
            key = TrustedKey(public_key, name, utc_now(), None if server is None else (server,))
        elif server is None:
            key = replace(known, name=name, servers=None)
        else:
            key = known if known.servers is None else replace(known, servers=tuple({*known.servers, server}))
        path = self._file_of(key)
        try:
            _write(path, canonical_json(key.to_json()).encode() + b"\n", os.replace)
        except OSError as error:
            raise _unusable(path, error) from None
        return key

    def forget(self, key: TrustedKey) -> None:
        """Trust a key no longer."""
        try:
            self._file_of(key).unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(self._file_of(key), error) from None

    def _file_of(self, key: TrustedKey) -> Path:
        return self.path / _TRUSTED / f"{key.id}.json"


def read_private_key(path: Path) -> SigningKey:
    """The private key in a PEM file. Raises :class:`KeyFileError` also for one that others may read."""
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()
    except OSError as error:
        raise _unusable(path, error) from None
    if mode & 0o007:
        raise KeyFileError(f"{path}: everybody may read this private key", hint=f"chmod 600 {path}")
    return SigningKey.from_pem(text, path)


@dataclass(frozen=True, slots=True)
class Admission:
    """Why a bundle was taken. ``key`` is who signed it, None where nobody whom we trust did; ``first_use``: it is
    trusted from now on, since its server showed none before."""

    reason: str
    key: str | None = None
    first_use: bool = False


def admit_file(bundle: Bundle, keys: KeyFolder, *, allow_unsigned: bool = False) -> Admission:
    """Take a bundle that lies on this machine.

    Raises:
        UntrustedBundle: its signature is false; or nobody who is trusted signed it, though a service wrote it.
        MissingExtra: it is signed, and the package cryptography is not installed.
    """
    signer = signer_of(bundle.head, str(bundle.path))
    if signer is None:
        if bundle.manifest.service == LOCAL:
            return Admission("not signed, written without a service")
        return _unless(
            allow_unsigned,
            f"{bundle.path} is not signed, and it came from a service ({bundle.manifest.service})",
            "pull it again: services sign their bundles",
        )
    known = _words(signer, keys, lambda key: True)
    if known is not None:
        return Admission(known, signer)
    return _unless(
        allow_unsigned,
        f"{bundle.path} is signed by {key_id(signer)}, which is not trusted here",
        f"if that is right: deuteron keys trust {signer}",
    )


def admit_pulled(bundle: Bundle, server: str, keys: KeyFolder, *, allow_unsigned: bool = False) -> Admission:
    """Take a bundle that ``server`` (its address) sent. The first key that a server shows is trusted from then on.

    Raises:
        UntrustedBundle: its signature is false; it has none; or it is signed by a key that is neither trusted nor the
            one that the server showed before.
        MissingExtra: it is signed, and the package cryptography is not installed.
    """
    address = server_address(server)
    signer = signer_of(bundle.head, f"the bundle of {address}")
    if signer is None:
        return _unless(
            allow_unsigned,
            f"the bundle of {address} is not signed",
            "let the service sign (DEUTERON_SIGNING_KEY)",
        )
    known = _words(signer, keys, lambda key: key.servers is None or address in key.servers)
    if known is not None:
        return Admission(known, signer)
    shown = [key for key in keys.trusted() if key.servers is not None and address in key.servers]
    if shown:
        return _unless(
            allow_unsigned,
            f"the key of {address} has changed: it was {shown[-1].id}, this bundle is signed by {key_id(signer)}. "
            "Somebody may stand between you and the service, or its key was replaced",
            f"if that is right: deuteron keys trust {signer}",
        )
    if allow_unsigned:
        return Admission(f"signed by {key_id(signer)}, which is not trusted here")
    keys.trust(signer, address, server=address)
    return Admission(f"signed by {key_id(signer)}, the first key of {address}, trusted from now on", signer, True)


def server_address(url: str) -> str:
    """The part of a URL that stands for a service: scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}".lower()


def _words(signer: str, keys: KeyFolder, counts: Callable[[TrustedKey], bool]) -> str | None:
    """Who the signer is, in words, if it is this machine or a trusted key that counts here."""
    own = keys.own()
    if own is not None and own.public_key == signer:
        return f"signed by {key_id(signer)} (this machine)"
    key = next((key for key in keys.trusted() if key.public_key == signer and counts(key)), None)
    return None if key is None else f"signed by {key.id} ({key.name})"


def _unless(allowed: bool, problem: str, hint: str) -> Admission:
    if not allowed:
        raise UntrustedBundle(problem, hint=f"{hint}; {_ANYWAY}")
    return Admission(problem)


def _write(path: Path, content: bytes, publish: Callable[[str, Path], None]) -> None:
    """Write a private file whole; ``publish`` gives it its name."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # readable by its owner alone
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _unusable(path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(f"{path}: {error.strerror or error}", hint="DEUTERON_HOME names the folder that has keys/")
