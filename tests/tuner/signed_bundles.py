"""Bundles that a test signs: whose they are, and whether a download of one is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deuteron.tuner.errors import UntrustedBundle
from deuteron.tuner.records import Bundle, read_bundle
from deuteron.tuner.records.signature import signer_of
from deuteron.tuner.records.trust import KeyFolder, admit_pulled

THERE = "http://there:8642"
Write = Callable[..., Path]


def signer(path: Path) -> str | None:
    """Who signed a file, as a reader of it finds out."""
    bundle = read_bundle(path)
    return signer_of(bundle.head, str(path))


def refuses(bundle: Bundle, keys: KeyFolder, server: str = THERE) -> bool:
    """Whether a download is refused, and nothing was trusted by asking."""
    before = keys.trusted()
    try:
        admit_pulled(bundle, server, keys)
    except UntrustedBundle:
        return keys.trusted() == before
    return False
