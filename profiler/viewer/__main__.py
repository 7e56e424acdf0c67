"""``python -m deuteron.profiler.viewer``."""

import sys

from .arguments import main

sys.exit(main())
