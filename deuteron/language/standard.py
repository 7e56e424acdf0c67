"""The library written in the language, under the name of Triton's module ``triton.language.standard``."""

from deuteron.compiler.language import *  # noqa: F403
from deuteron.compiler.language import __all__ as __all__
from deuteron.compiler.language.builtin import builtin


@builtin
def _log2(i: int) -> int:
    """The exponent of a power of two that is known at compile time."""
    return int(i).bit_length() - 1
