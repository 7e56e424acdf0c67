"""The language under the name of Triton's module ``triton.language.core``."""

from deuteron.compiler.language import *  # noqa: F403
from deuteron.compiler.language import __all__ as __all__
from deuteron.compiler.language import constexpr
from deuteron.compiler.language.aggregate import aggregate as _aggregate  # noqa: F401
from deuteron.compiler.language.compile_time import unwrap_if_constexpr as _unwrap_if_constexpr  # noqa: F401

#: A default for parameters that are compile-time values.
CONSTEXPR_0 = constexpr(0)
