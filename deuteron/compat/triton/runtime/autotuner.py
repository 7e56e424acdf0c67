"""``@autotune`` and ``@heuristics``; classes that extend :class:`Autotuner` find Triton's attributes in it."""

from deuteron.compat.triton.runtime.errors import OutOfResources, PTXASError
from deuteron.compiler import Autotuner, Config, Heuristics, autotune, heuristics

__all__ = ["Autotuner", "Config", "Heuristics", "OutOfResources", "PTXASError", "autotune", "heuristics"]
