"""How settings are written: yes and no, sizes, paths and architectures as texts."""

from __future__ import annotations

from pathlib import Path

#: What a setting that is yes or no may be, in small letters.
BOOLEANS = dict.fromkeys(["1", "true", "yes", "y", "on"], True) | dict.fromkeys(["0", "false", "no", "n", "off"], False)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: What :func:`bytes_of` reads, in words.
SIZES = "bytes, or a number with K, M, G or T"


def bytes_of(text: str) -> int:
    """The size that ``text`` gives, such as ``4096``, ``64K`` or ``2GiB``; raises ValueError where it gives none."""
    digits = text.upper().removesuffix("B").removesuffix("I")
    unit = digits[-1:] if digits[-1:] in _UNITS else ""
    value = int(digits.removesuffix(unit)) * _UNITS[unit]
    if value < 0:
        raise ValueError(text)
    return value


def absolute_path(text: str) -> Path:
    """The path that ``text`` gives, from the root; raises ValueError where it needs a home folder that is not there."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # of a user who is not there, or has no home folder
        raise ValueError(text) from error


def architecture_of(text: str) -> str:
    """The target of an architecture such as ``90a`` or ``sm90a``: ``cuda:90a``; raises ValueError for another text."""
    arch = text.lower().removeprefix("cuda:").removeprefix("sm_").removeprefix("sm")
    if not arch.rstrip("af").isdigit():
        raise ValueError(text)
    return f"cuda:{arch}"


def written(value: object) -> str:
    """A value as a variable and documentation have it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if value is None or value == "":
        return "not set"
    return str(value)
