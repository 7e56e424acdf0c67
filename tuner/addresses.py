"""Which texts can be addresses of services, without httpx, so that settings are checked before anything is called."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_SERVICE = re.compile(r"https?://[^/?#\s]+(/[^?#\s]*)?")
_QUERY = re.compile(r"[^#\s]*")


def is_file_address(url: str) -> bool:
    """Whether ``url`` can be that of a file of a service: there may be a query, as in ``?kernel=softmax``."""
    service, _, query = url.partition("?")
    return is_service_address(service) and _QUERY.fullmatch(query) is not None and query.isprintable()


def is_service_address(url: str) -> bool:
    """Whether ``url`` names a host that can exist, over http or https: not ``http://a..b``, nor ``http://xn--a``."""
    if not _SERVICE.fullmatch(url):
        return False
    try:
        url.encode()  # which halves of surrogate pairs have no way to be
        parts = urlsplit(url)
        host = parts.hostname or ""
        # Both ways: the first refuses empty and long labels, the second ASCII forms of no name.
        host.encode("idna").decode("idna")
        return bool(host) and (parts.port is None or parts.port > 0)
    except ValueError:  # of which UnicodeError is one
        return False
