"""``python -m deuteron.profiler`` is the ``proton`` command."""

import sys

from .cli import proton_main as main

if __name__ == "__main__":
    sys.exit(main())
