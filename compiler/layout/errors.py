"""The error of this room."""

from __future__ import annotations

from ..errors import IRError


class LayoutError(IRError):
    """A layout cannot be built, parsed or converted; the message shows the layout or the shape."""
