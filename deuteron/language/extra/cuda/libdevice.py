"""libdevice under the name of Triton's module ``triton.language.extra.cuda.libdevice``."""

from deuteron.compiler.language.libdevice import *  # noqa: F403
from deuteron.compiler.language.libdevice import __all__ as __all__
