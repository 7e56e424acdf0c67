"""``python -m deuteron``: the command, for processes that must run in this very interpreter."""

from __future__ import annotations

import sys

from deuteron.cli import main

sys.exit(main())
