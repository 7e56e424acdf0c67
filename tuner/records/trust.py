"""Whose bundles this machine takes: its own key, keys that a person trusts, and those that servers showed first.

The rules, row by row, are the table of docs/config-bundles.md ("Signatures").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deuteron.compiler import knobs

from ..errors import UntrustedBundle
from .bundle import Bundle
from .key_folder import KeyFolder, TrustedKey, read_private_key, server_address
from .signature import key_id, signer_of

__all__ = [
    "LOCAL",
    "Admission",
    "KeyFolder",
    "TrustedKey",
    "admit_file",
    "admit_pulled",
    "machine_keys",
    "read_private_key",
    "server_address",
]

#: What a bundle that no service wrote says in its manifest. Nobody vouches for that.
LOCAL = "local"

_ANYWAY = "--allow-unsigned takes it all the same"


@dataclass(frozen=True, slots=True)
class Admission:
    """Why a bundle was taken. ``key`` is who signed it, None where nobody whom we trust did; ``first_use``: it is
    trusted from now on, since its server showed none before."""

    reason: str
    key: str | None = None
    first_use: bool = False


def machine_keys() -> KeyFolder:
    """The keys of this machine, in the folder ``keys`` of DEUTERON_HOME."""
    return KeyFolder(knobs.home.get() / "keys")


def admit_file(bundle: Bundle, keys: KeyFolder, *, allow_unsigned: bool = False) -> Admission:
    """Take a bundle that lies on this machine. One without a signature says itself whether a service wrote it: taking
    it where none did is no protection from who can change the file, unless only trusted keys count
    (DEUTERON_TRUSTED_KEYS_ONLY).

    Raises:
        UntrustedBundle: its signature is false; or nobody who is trusted signed it, though a service wrote it or only
            trusted keys count.
        MissingExtra: it is signed, and the package cryptography is not installed.
    """
    signer = signer_of(bundle.head, str(bundle.path))
    if signer is None:
        if bundle.manifest.service == LOCAL:
            return _unless(
                allow_unsigned or not knobs.trusted_keys_only.get(),
                f"{bundle.path} is not signed, nobody vouches for it (it says that no service wrote it)",
                f"{knobs.trusted_keys_only.name} is set",
            )
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
            one that the server showed first; or it showed another key before that counted then.
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
    known = _words(signer, keys, lambda key: key.counts_at(address))
    if known is not None:
        keys.remember(signer, address)
        return Admission(known, signer)
    hint = f"if that is right: deuteron keys trust {signer}"
    if allow_unsigned or knobs.trusted_keys_only.get():
        shown = keys.shown(address)
        strange = f"the bundle of {address} is signed by {key_id(signer)}, which is not trusted here"
        problem = _changed(address, shown, key_id(signer)) if shown else strange
        return _unless(allow_unsigned, problem, f"{hint}; {knobs.trusted_keys_only.name} is set")
    if not keys.trust_first(signer, address):
        raise _refusal(_changed(address, keys.shown(address), key_id(signer)), hint)
    return Admission(f"signed by {key_id(signer)}, the first key of {address}, trusted from now on", signer, True)


def _changed(address: str, shown: tuple[str, ...], signer: str) -> str:
    if signer in shown:
        return f"the bundle of {address} is signed by {signer}, which is trusted no longer"
    return (
        f"the key of {address} has changed: it was {shown[-1]}, this bundle is signed by {signer}. "
        "Somebody may stand between you and the service, or its key was replaced"
    )


def _words(signer: str, keys: KeyFolder, counts: Callable[[TrustedKey], bool]) -> str | None:
    """Who the signer is, in words, if it is this machine or a trusted key that counts here."""
    own = keys.own()
    if own is not None and own.public_key == signer:
        return f"signed by {key_id(signer)} (this machine)"
    key = next((key for key in keys.trusted() if key.public_key == signer and counts(key)), None)
    return None if key is None else f"signed by {key.id} ({key.name})"


def _unless(allowed: bool, problem: str, hint: str) -> Admission:
    if not allowed:
        raise _refusal(problem, hint)
    return Admission(problem)


def _refusal(problem: str, hint: str) -> UntrustedBundle:
    return UntrustedBundle(problem, hint=f"{hint}; {_ANYWAY}")
