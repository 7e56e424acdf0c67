"""The certificate by which a service and its embedded workers know each other."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from distributed.security import Security

# Workers start at any time, and a machine's clock may have been wrong when the service did; RFC 5280 has the last one
# for certificates without an end. In UTC, as X.509 says.
_VALID_FROM, _VALID_UNTIL = datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
# What Dask's own, which are valid for a year from the moment when they are made, are called.
_NAME = "dask-internal"


def embedded_security() -> Security:
    """A key and a certificate signed by it for all of one cluster; in memory alone."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    roles = ("client", "scheduler", "worker")
    own = {f"tls_{role}_{part}": text for role in roles for part, text in (("key", private), ("cert", certificate))}
    return Security(require_encryption=True, tls_ca_file=certificate, **own)  # type: ignore[no-untyped-call]
