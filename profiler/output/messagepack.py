"""The ``.hatchet_msgpack`` file: the structure of ``.hatchet`` as MessagePack, keys in the order frame, metrics,
children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deuteron.compiler.extras import require_packages

from ..errors import MalformedProfile
from .hatchet import to_literal

if TYPE_CHECKING:
    from ..tree import ProfileTree


def to_bytes(profile: ProfileTree) -> bytes:
    """Encode a profile. A whole number that takes more than 64 bits is the float next to it.

    Raises MalformedProfile for a tree that is deeper than the format's reader allows, MissingExtra without msgpack.
    """
    require_packages("msgpack", by="the format hatchet_msgpack")
    import msgpack

    try:
        # Halves of surrogate pairs, which the format cannot hold, become the text of their escapes.
        packed = msgpack.packb(to_literal(profile), default=float, unicode_errors="backslashreplace")
    except OverflowError as error:
        raise MalformedProfile(
            f"a metric is too large for MessagePack: {error}", hint="write the .hatchet format instead"
        ) from error
    except ValueError as error:  # msgpack's C packer stops at 511 nested containers
        raise MalformedProfile(
            f"the call paths are too deep for MessagePack: {error}",
            hint="write the .hatchet format instead",
        ) from error
    return bytes(packed)
