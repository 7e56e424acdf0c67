"""The functions of numbers, as ``tl.math.exp2`` and as a module to import from."""

from deuteron.compiler.language import PropagateNan as PropagateNan
from deuteron.compiler.language import abs as abs
from deuteron.compiler.language import ceil as ceil
from deuteron.compiler.language import clamp as clamp
from deuteron.compiler.language import cos as cos
from deuteron.compiler.language import div_rn as div_rn
from deuteron.compiler.language import erf as erf
from deuteron.compiler.language import exp as exp
from deuteron.compiler.language import exp2 as exp2
from deuteron.compiler.language import fdiv as fdiv
from deuteron.compiler.language import floor as floor
from deuteron.compiler.language import fma as fma
from deuteron.compiler.language import log as log
from deuteron.compiler.language import log2 as log2
from deuteron.compiler.language import maximum as maximum
from deuteron.compiler.language import minimum as minimum
from deuteron.compiler.language import rsqrt as rsqrt
from deuteron.compiler.language import sin as sin
from deuteron.compiler.language import sqrt as sqrt
from deuteron.compiler.language import sqrt_rn as sqrt_rn
from deuteron.compiler.language import umulhi as umulhi
