"""A profile as users have it: the tree, with its files."""

from __future__ import annotations

import os
from pathlib import Path

from .decode import fill_profile, read_literal
from .output.files import write_atomic
from .output.hatchet import to_literal, to_text
from .output.messagepack import to_bytes
from .tree import ProfileTree


class Profile(ProfileTree):
    """A tree of frames with metrics, built while a program runs and written as ``.hatchet``."""

    def to_literal(self) -> list[object]:
        """The profile as the Python lists and dictionaries that the ``.hatchet`` file holds."""
        return to_literal(self)

    def to_hatchet(self) -> str:
        """The text of a ``.hatchet`` file."""
        return to_text(self)

    def to_msgpack(self) -> bytes:
        """The profile as MessagePack (``.hatchet_msgpack``)."""
        return to_bytes(self)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write a ``.hatchet`` file; the old file stays whole until the new one is complete.

        Raises ProfileFileError if the file cannot be written.
        """
        return write_atomic(path, self.to_hatchet().encode())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Profile:
        """Read a ``.hatchet`` or ``.hatchet_msgpack`` file.

        Raises ProfileFileError if the file cannot be read, MalformedProfile if it is not a profile.
        """
        return cls.from_literal(read_literal(path))

    @classmethod
    def from_literal(cls, literal: list[dict[str, object]]) -> Profile:
        """Build a profile from a checked literal (:func:`deuteron.profiler.decode.check_literal`)."""
        profile = cls()
        fill_profile(profile, literal)
        return profile
