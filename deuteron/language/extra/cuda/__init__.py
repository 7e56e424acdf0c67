"""``from deuteron.language.extra.cuda import libdevice``, and what only NVIDIA GPUs have."""

from deuteron.compiler.language.cuda import gdc_launch_dependents as gdc_launch_dependents
from deuteron.compiler.language.cuda import gdc_wait as gdc_wait
from deuteron.compiler.language.cuda import globaltimer as globaltimer
from deuteron.compiler.language.cuda import num_threads as num_threads
from deuteron.compiler.language.cuda import num_warps as num_warps
from deuteron.compiler.language.cuda import smid as smid
from deuteron.language.extra.cuda import gdc as gdc
from deuteron.language.extra.cuda import libdevice
from deuteron.language.extra.cuda import utils as utils

__all__ = ["gdc_launch_dependents", "gdc_wait", "globaltimer", "libdevice", "num_threads", "num_warps", "smid"]
