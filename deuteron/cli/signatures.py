"""Bundles of which commands ask who signed them, and where this machine keeps its keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deuteron.tuner import Bundle
    from deuteron.tuner.records.trust import Admission, KeyFolder

AllowUnsigned = Annotated[
    bool,
    typer.Option("--allow-unsigned", help="Take a bundle that nobody signed, or nobody whose key is trusted."),
]


def key_folder() -> KeyFolder:
    """The folder ``keys`` of DEUTERON_HOME."""
    from deuteron.tuner.records.trust import machine_keys  # lazy: help starts without the tuner

    return machine_keys()


def bundle_reader(allow_unsigned: bool) -> Callable[[Path], Bundle]:
    """Reads bundles among the sources of a command, as :func:`read_signed` does."""
    return lambda path: read_signed(path, allow_unsigned=allow_unsigned)[0]


def read_signed(path: Path, *, allow_unsigned: bool) -> tuple[Bundle, Admission]:
    """A bundle file, verified, and why it is taken.

    Raises:
        BundleError: it is damaged.
        UntrustedBundle: its signature is false, or it has none that counts and needs one.
    """
    from deuteron.tuner import read_bundle  # lazy: help starts without the tuner
    from deuteron.tuner.records.trust import admit_file  # lazy: as above

    bundle = read_bundle(path)
    return bundle, admit_file(bundle, key_folder(), allow_unsigned=allow_unsigned)
