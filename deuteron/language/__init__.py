"""The kernel language under its public name: ``import deuteron.language as tl``."""

from deuteron.compiler.language import *  # noqa: F403
from deuteron.compiler.language import __all__ as __all__
from deuteron.language import core as core
from deuteron.language import extra as extra
from deuteron.language import math as math
from deuteron.language import random as random
from deuteron.language import standard as standard
from deuteron.language import target_info as target_info
