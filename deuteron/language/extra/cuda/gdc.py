"""Kernels that begin while others end, under the name of Triton's module; here none does."""

from deuteron.compiler.language.cuda import gdc_launch_dependents as gdc_launch_dependents
from deuteron.compiler.language.cuda import gdc_wait as gdc_wait
