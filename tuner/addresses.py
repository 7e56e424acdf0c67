"""Which texts can be addresses of services, without httpx, so that settings are checked before anything is called."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_SERVICE = re.compile(r"^https?://[^/?#\s]+(/[^?#\s]*)?$")


def is_service_address(url: str) -> bool:
    """Whether ``url`` names a host that can exist, over http or https: not ``http://a..b``, nor ``http://xn--a``."""
    if not _SERVICE.match(url):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Both ways: the first refuses empty and long labels, the second ASCII forms of no name.
        host.encode("idna").decode("idna")
        return bool(host) and (parts.port is None or parts.port > 0)
    except ValueError:  # of which UnicodeError is one
        return False
