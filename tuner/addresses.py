"""Which texts can be addresses of services, without httpx, so that settings are checked before anything is called."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_SCHEME = re.compile(r"(?i:https?)://")  # RFC 3986: schemes are the same in capitals
_SERVICE = re.compile(rf"{_SCHEME.pattern}[^/?#\s]+(/[^?#\s]*)?")
_QUERY = re.compile(r"[^#\s]*")


def is_url(text: str) -> bool:
    """Whether a text that may name a file or a service is to name a service, though perhaps none that can exist."""
    return _SCHEME.match(text) is not None


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
