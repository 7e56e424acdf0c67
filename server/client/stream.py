"""Server-Sent Events, read line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from .answers import RemoteEvent


def parse_events(lines: Iterable[str]) -> Iterator[RemoteEvent]:
    """Complete events of a stream; one that was cut off by a lost connection is not among them."""
    fields: dict[str, str] = {}
    for line in lines:
        if line == "":
            event = _event(fields)
            fields = {}
            if event is not None:
                yield event
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            # The format allows several data lines for one event.
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value


def _event(fields: dict[str, str]) -> RemoteEvent | None:
    if "data" not in fields or "id" not in fields:
        return None
    data = json.loads(fields["data"])
    return RemoteEvent(int(fields["id"]), fields.get("event", "message"), data)
