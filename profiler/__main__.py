"""``python -m deuteron.profiler`` is the ``proton`` command."""

import sys

from .cli import proton_main

sys.exit(proton_main())
