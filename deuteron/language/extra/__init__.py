"""``from deuteron.language.extra import libdevice``."""

from deuteron.compiler.language import libdevice

__all__ = ["libdevice"]
