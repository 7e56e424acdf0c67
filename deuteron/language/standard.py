"""The library written in the language, under the name of Triton's module ``triton.language.standard``."""

from deuteron.compiler.language import *  # noqa: F403
from deuteron.compiler.language import __all__ as __all__
from deuteron.compiler.language.standard import exponent as _log2  # noqa: F401
