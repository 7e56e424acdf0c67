"""The functions of CUDA's libdevice, written in the language: no bitcode library is needed.

A function of f64 alone in CUDA takes narrower floats too where nothing else is said.
"""

from __future__ import annotations

from . import conversions, directed, elementary, integers
from .conversions import *  # noqa: F403
from .directed import *  # noqa: F403
from .elementary import *  # noqa: F403
from .integers import *  # noqa: F403

__all__ = sorted({*conversions.__all__, *directed.__all__, *elementary.__all__, *integers.__all__})
