"""Best configurations with their evidence: identity, lookup, bundles."""

from .bundle import Bundle, Manifest, encode_record, read_bundle, write_bundle
from .fingerprint import DeviceFingerprint, canonical_name
from .lookup import Answer, RecordIndex, lookup
from .predictor import Predictor
from .record import ConfigRecord
from .toolchain import Difference, current_toolchain

__all__ = [
    "Answer",
    "Bundle",
    "ConfigRecord",
    "DeviceFingerprint",
    "Difference",
    "Manifest",
    "Predictor",
    "RecordIndex",
    "canonical_name",
    "current_toolchain",
    "encode_record",
    "lookup",
    "read_bundle",
    "write_bundle",
]
