"""Names that become Python: those of kernels and sizes come from bundles, and a bundle may come from anywhere."""

from __future__ import annotations

import keyword
from collections.abc import Collection

from ..errors import CommandError


def python_name(name: str, what: str, taken: Collection[str] = ()) -> str:
    """``name`` if a module that is written may have it as a name beside those that are ``taken``.

    Raises:
        CommandError: it is no name of Python's in ASCII; as text of a module it could be anything. Or it is taken.
    """
    if name in taken:
        raise CommandError(f"{what} {name!r} is a name of the module itself", hint="--format json has any name")
    if name.isascii() and name.isidentifier() and not keyword.iskeyword(name):
        return name
    raise CommandError(f"{what} {name!r} is no name that Python code can have", hint="--format json has any name")
