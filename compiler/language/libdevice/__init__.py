"""The functions of CUDA's libdevice, written in the language: no bitcode library is needed.

A function of f64 alone in CUDA takes narrower floats too where nothing else is said.
"""

from __future__ import annotations

from . import (
    bessel,
    bessel_orders,
    conversions,
    directed,
    elementary,
    errors,
    floats,
    gamma,
    hyperbolic,
    integers,
    inverses,
    norms,
    trigonometry,
)
from .bessel import *  # noqa: F403
from .bessel_orders import *  # noqa: F403
from .conversions import *  # noqa: F403
from .directed import *  # noqa: F403
from .elementary import *  # noqa: F403
from .errors import *  # noqa: F403
from .floats import *  # noqa: F403
from .gamma import *  # noqa: F403
from .hyperbolic import *  # noqa: F403
from .integers import *  # noqa: F403
from .inverses import *  # noqa: F403
from .norms import *  # noqa: F403
from .trigonometry import *  # noqa: F403

_CONCEPTS = (
    bessel,
    bessel_orders,
    conversions,
    directed,
    elementary,
    errors,
    floats,
    gamma,
    hyperbolic,
    integers,
    inverses,
    norms,
    trigonometry,
)

__all__ = sorted(name for concept in _CONCEPTS for name in concept.__all__)
