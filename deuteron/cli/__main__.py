"""``python -m deuteron.cli``: the command for processes that must run in this very interpreter."""

from __future__ import annotations

import sys

from . import main

sys.exit(main())
