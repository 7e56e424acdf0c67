"""Addresses that the service's settings name: which texts can be some, and how they are shown."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from urllib.parse import quote

from deuteron.tuner.addresses import is_service_address

_DATABASE_URL = re.compile(r"^(sqlite|postgres|postgresql)(\+\w+)?://")
_SCHEDULER = re.compile(r"^(tcp|tls)://[^/]+:(\d{1,5})$")
_SECRETS = re.compile(r"(?<=//).*@|(?<=password=)[^&]*", re.IGNORECASE)
_NO_SERVICE = re.compile(r"@|//.*/.")


def sqlite_address(file: Path) -> str:
    """The address of a database in this file, whatever is in its name: a question mark would begin options, and a
    percent sign another letter."""
    return f"sqlite:///{quote(os.fsencode(file))}"


def is_database_address(url: str) -> bool:
    """Whether ``url`` begins as addresses of SQLite and PostgreSQL do."""
    return _DATABASE_URL.match(url) is not None


def is_scheduler_address(address: str) -> bool:
    """Whether ``address`` names a scheduler of Dask's, with a port."""
    found = _SCHEDULER.match(address)
    return found is not None and 0 < int(found[2]) < 1 << 16


def is_upstream_address(url: str) -> bool:
    """Whether ``url`` names a service as a whole, without a user and without a path."""
    return is_service_address(url) and _NO_SERVICE.search(url) is None


def is_loopback_host(host: str) -> bool:
    """Whether ``host``, a name or an address, is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def without_secrets(address: str) -> str:
    """An address for people to read, also one that does not parse: name and password are left out."""
    return _SECRETS.sub(lambda found: "***@" if found[0].endswith("@") else "***", address)
