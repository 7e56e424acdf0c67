"""``from deuteron.language.extra.cuda import libdevice``."""

from deuteron.language.extra.cuda import libdevice

__all__ = ["libdevice"]
