"""``from deuteron.language.extra.cuda import libdevice``, and what only NVIDIA GPUs have."""

from deuteron.compiler.language.cuda import globaltimer as globaltimer
from deuteron.compiler.language.cuda import smid as smid
from deuteron.language.extra.cuda import libdevice

__all__ = ["globaltimer", "libdevice", "smid"]
