"""The keys of a machine as files: its own, those that it trusts, and which of them services showed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from deuteron.compiler.folders import make_folder
from deuteron.compiler.whole_file import write_whole

from ..codec import Document, canonical_json, decode
from ..errors import KeyFileError, SchemaError
from ..input_file import read_file
from ..trial import utc_now
from .signature import PublicKey, SigningKey, key_id

_OWN = "own.pem"
_TRUSTED = "trusted"
_SERVICES = "services.json"
_LOCK = "lock"
_OWNERS = 0o600  # permissions: nobody else reads or writes it
_WHERE = "DEUTERON_HOME names the folder that has keys/"
_DEFAULT_PORTS = {"http": 80, "https": 443}

T = TypeVar("T", bound=Document)


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

    def counts_at(self, address: str) -> bool:
        """Whether it counts for what the service at ``address`` sends."""
        return self.servers is None or self.was_first_at(address)

    def was_first_at(self, address: str) -> bool:
        """Whether the service at ``address`` showed it first."""
        return address in _first_at(self)


class ServiceKeys(Document, frozen=True):
    """``shown``: for the address of each service the ids of the keys that it showed and that counted, oldest first.
    They stay when a key is trusted in another way, or no longer."""

    noun: ClassVar[str] = "keys of services"

    shown: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class KeyFolder:
    """The keys of a machine: ``own.pem``, private; ``trusted/ID.json``; and ``services.json``.

    Files appear whole or not at all. Who changes what is trusted holds a lock on ``lock``, so that of two processes or
    threads neither undoes what the other writes. Addresses are those of
    :func:`server_address`. Every method raises :class:`KeyFileError` for a file that cannot be read or written, or is
    none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def own_path(self) -> Path:
        """Where the private key is."""
        return self.path / _OWN

    def own(self) -> SigningKey | None:
        """The key that this machine signs with, None where there is none."""
        try:
            self.own_path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(self.own_path, error) from None
        return read_private_key(self.own_path)

    def create(self) -> SigningKey:
        """Make the machine's key. Of two who do so at once one succeeds."""
        key = SigningKey.generate()
        self._make(self.path)
        try:
            write_whole(self.own_path, key.to_pem(), mode=_OWNERS, new=True)
        except FileExistsError:
            raise KeyFileError(
                f"{self.own_path} exists", hint="move it away to make another; clients then have to trust that one"
            ) from None
        except OSError as error:
            raise self._unusable(self.own_path, error) from None
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
        """All trusted keys, oldest first. Of several files with one key the oldest names it, and all of them count."""
        found: dict[str, TrustedKey] = {}
        for _, key in sorted(self._files(), key=lambda file: (file[1].added_at, file[1].id)):
            older = found.setdefault(key.public_key, key)
            if older.servers is not None:
                servers = None if key.servers is None else tuple(dict.fromkeys((*older.servers, *key.servers)))
                found[key.public_key] = replace(older, servers=servers)
        return list(found.values())

    def shown(self, address: str) -> tuple[str, ...]:
        """The ids of the keys that a service showed and that counted then, oldest first, whatever became of them."""
        first = (key.id for key in self.trusted() if key.was_first_at(address))
        return tuple(dict.fromkeys((*self._services().shown.get(address, ()), *first)))

    def services(self) -> dict[str, tuple[str, ...]]:
        """The ids of all keys that services showed and that counted then, each with the addresses of those services."""
        first = {address for key in self.trusted() for address in _first_at(key)}
        found: dict[str, list[str]] = {}
        for address in sorted(first | self._services().shown.keys()):
            for one in self.shown(address):
                found.setdefault(one, []).append(address)
        return {one: tuple(addresses) for one, addresses in found.items()}

    def trust(self, public_key: str, name: str, *, service: str | None = None) -> TrustedKey:
        """Trust a key everywhere, as a person does. ``service``: the address of one that has it, from which no other
        key is taken as its first."""
        with self._changing():
            known = self._known(public_key)
            self._remember(public_key, *_first_at(known), *([service] if service else []))
            key = TrustedKey(public_key, name, utc_now() if known is None else known.added_at)
            self._put(key)
        return key

    def trust_first(self, public_key: str, address: str) -> bool:
        """Trust a key as the first that a service shows: from there, and in files. False where it showed another that
        counted."""
        with self._changing():
            known = self._known(public_key)
            if known is None or not known.counts_at(address):
                if self.shown(address):
                    return False
                key = known or TrustedKey(public_key, address, utc_now())
                self._put(replace(key, servers=(*_first_at(known), address)))
            self._remember(public_key, address)
        return True

    def remember(self, public_key: str, address: str) -> None:
        """Keep that a service showed a key that counts. Where the folder cannot be written nothing happens: nothing can
        be trusted there as the first key either."""
        if key_id(public_key) in self._services().shown.get(address, ()):
            return
        with suppress(KeyFileError), self._changing():
            self._remember(public_key, address)

    def forget(self, key: TrustedKey) -> None:
        """Trust a key no longer. That services showed it stays known: another one does not become their first."""
        with self._changing():
            self._remember(key.public_key, *_first_at(self._known(key.public_key)))
            self._remove(path for path, found in self._files() if found.public_key == key.public_key)

    def _known(self, public_key: str) -> TrustedKey | None:
        return next((key for key in self.trusted() if key.public_key == public_key), None)

    def _files(self) -> list[tuple[Path, TrustedKey]]:
        """The files of trusted keys, whatever their names are."""
        folder = self.path / _TRUSTED
        try:
            paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(folder, error) from None
        found = ((path, self._read(path, TrustedKey)) for path in paths)
        return [(path, key) for path, key in found if key is not None]

    def _services(self) -> ServiceKeys:
        return self._read(self.path / _SERVICES, ServiceKeys) or ServiceKeys()

    def _read(self, path: Path, kind: type[T]) -> T | None:
        """The document in a file, None where there is none."""
        try:
            return decode(read_file(path), kind, str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(path, error) from None
        except SchemaError as error:
            raise KeyFileError(error.message, hint="put the file right, or away") from None

    def _remember(self, public_key: str, *addresses: str) -> None:
        known = self._services().shown
        added = {
            address: (*known.get(address, ()), key_id(public_key))
            for address in addresses
            if key_id(public_key) not in known.get(address, ())
        }
        if added:
            self._publish(self.path / _SERVICES, ServiceKeys({**known, **added}))

    def _put(self, key: TrustedKey) -> None:
        """Write a trusted key under its own name, and under no other."""
        path = self.path / _TRUSTED / f"{key.id}.json"
        others = [other for other, found in self._files() if found.public_key == key.public_key and other != path]
        self._publish(path, key)
        self._remove(others)

    def _publish(self, path: Path, content: Document) -> None:
        self._make(path.parent)
        try:
            write_whole(path, canonical_json(content.to_json()) + "\n", mode=_OWNERS)
        except OSError as error:
            raise self._unusable(path, error) from None

    def _remove(self, paths: Iterable[Path]) -> None:
        for path in list(paths):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise self._unusable(path, error) from None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Nobody else changes what is trusted meanwhile. The lock ends with its process."""
        self._make(self.path)
        path = self.path / _LOCK
        with ExitStack() as opened:
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                opened.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                raise self._unusable(path, error) from None
            yield

    def _make(self, folder: Path) -> None:
        try:
            make_folder(folder.parent)
            folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unusable(folder, error) from None

    def _unusable(self, path: Path, error: OSError) -> KeyFileError:
        for folder in (self.path, self.path / _TRUSTED):
            with suppress(OSError):  # the folder above may not be entered
                if folder.is_file():
                    return KeyFileError(
                        f"{folder} is a file, and should be a folder with keys", hint=f"move it away; {_WHERE}"
                    )
        return _unusable(path, error)


def server_address(url: str) -> str:
    """The part of a URL that stands for a service: scheme, host and port, in one spelling: small letters, no dot at the
    end of the host, no port that is the scheme's own."""
    parts = urlsplit(url.lower())
    try:
        host, port = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:  # a port that is none
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    host = f"[{host}]" if ":" in host else host
    ending = "" if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f":{port}"
    return f"{parts.scheme}://{host}{ending}"


def read_private_key(path: Path, hint: str = _WHERE) -> SigningKey:
    """The private key in a PEM file. Raises :class:`KeyFileError` also for one that others may read.

    ``hint``: what to do where there is no such file.
    """
    try:
        mode = path.stat().st_mode
        text = read_file(path)
    except OSError as error:
        raise _unusable(path, error, hint) from None
    if mode & 0o007:
        raise KeyFileError(f"{path}: everybody may read this private key", hint=f"chmod 600 {path}")
    return SigningKey.from_pem(text, path)


def _first_at(key: TrustedKey | None) -> tuple[str, ...]:
    """The addresses that showed a key first, if it is known."""
    return () if key is None else tuple(map(server_address, key.servers or ()))


def _unusable(path: Path, error: OSError, hint: str = _WHERE) -> KeyFileError:
    return KeyFileError(f"{path}: {error.strerror or error}", hint=hint)
