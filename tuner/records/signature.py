"""Signatures of bundles: ed25519 (RFC 8032) over the manifest, which holds the sha256 of everything after it.

The manifest of a signed bundle has the member ``{"signature": {"key", "value"}}``, public key and signature in hex.
Signed is line 1 as it reads without that member, whatever else is in it, so that later versions may add to both the
manifest and the lines that follow. Only the canonical spelling of line 1 is a signed bundle: no byte of it is free.

The package cryptography is imported where a key is used: reading bundles does without.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import msgspec

from deuteron.compiler.extras import require_packages

from ..codec import Document, canonical_json, convert, expect_object, parse_json
from ..errors import KeyFileError, UntrustedBundle

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: What is signed begins with this, so that no signature of something else can stand for one of a bundle.
CONTEXT = b"deuteron bundle manifest\n"

_ID_DIGITS = 32
_AGAIN = "fetch it again, or export it again from its source"

#: 32 bytes in hex; the signature has 64.
PublicKey = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Value = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]


class Signature(Document, frozen=True, forbid_unknown_fields=True):
    """``key``: the public key of who signed. ``value``: the signature."""

    noun: ClassVar[str] = "signature"

    key: PublicKey
    value: _Value


def key_id(public_key: str) -> str:
    """The fingerprint of a public key: the first 128 bits of its sha256, in hex."""
    return hashlib.sha256(bytes.fromhex(public_key)).hexdigest()[:_ID_DIGITS]


class SigningKey:
    """A private key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key: str = private.public_key().public_bytes_raw().hex()

    @property
    def id(self) -> str:
        """The fingerprint of its public key."""
        return key_id(self.public_key)

    @classmethod
    def generate(cls) -> Self:
        """A new key out of the system's random numbers. Raises MissingExtra without the package cryptography."""
        require_packages("cryptography", by="a key for signatures")
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # lazy: of the extra keys

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, text: bytes, where: Path) -> Self:
        """The key in a PEM file (PKCS #8, without a password), as :meth:`to_pem` and ``openssl genpkey`` write it.
        Raises :class:`KeyFileError` for anything else, MissingExtra without the package cryptography."""
        require_packages("cryptography", by="signing bundles")
        from cryptography.exceptions import UnsupportedAlgorithm  # lazy: of the extra keys
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # lazy: as above
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # lazy: as above

        try:
            private = load_pem_private_key(text, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise KeyFileError(
                f"{where} is not an ed25519 private key without a password",
                hint="`deuteron keys create` makes one, and `openssl genpkey -algorithm ed25519`",
            )
        return cls(private)

    def to_pem(self) -> bytes:
        """The private key as PEM (PKCS #8)."""
        from cryptography.hazmat.primitives import serialization as forms  # lazy: of the extra keys

        return self._private.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())

    def sign(self, unsigned_line: bytes) -> Signature:
        """The signature of a bundle whose first line without its signature is ``unsigned_line``."""
        return Signature(self.public_key, self._private.sign(CONTEXT + unsigned_line).hex())


def signer_of(line: bytes, where: str) -> str | None:
    """The public key that signed a bundle with this first line; None for one without a signature.

    Raises:
        UntrustedBundle: there is a signature, and it is not one of this line.
        MissingExtra: there is one, and the package cryptography is not installed.
    """
    fields = expect_object(parse_json(line, where), where)
    found = fields.pop("signature", None)
    if found is None:
        return None
    signature = convert(found, Signature, f"{where}: signature")
    require_packages("cryptography", by=f"the check of the signature of {where}")
    from cryptography.exceptions import InvalidSignature  # lazy: of the extra keys
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # lazy: as above

    false = UntrustedBundle(f"{where}: the signature is not that of this bundle, which was altered", hint=_AGAIN)
    if line != manifest_line({**fields, "signature": found}):
        raise false
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
        key.verify(bytes.fromhex(signature.value), CONTEXT + manifest_line(fields))
    except (InvalidSignature, ValueError):
        raise false from None
    return signature.key


def manifest_line(fields: dict[str, object]) -> bytes:
    """The first line of a bundle; a signature that is None is left out."""
    present = {name: value for name, value in fields.items() if name != "signature" or value is not None}
    return canonical_json(present).encode() + b"\n"
