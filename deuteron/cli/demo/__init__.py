"""``deuteron demo``: the main job from end to end, as a user would do it, on this machine.

service.py   the service in a process of its own
search.py    two jobs over HTTP, and what they found
offline.py   launches in a fresh process that has only the bundle
"""

from __future__ import annotations

from .command import demo

__all__ = ["demo"]
