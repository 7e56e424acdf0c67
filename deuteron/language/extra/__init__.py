"""``from deuteron.language.extra import libdevice``."""

from deuteron.language.extra import cuda, libdevice

__all__ = ["cuda", "libdevice"]
