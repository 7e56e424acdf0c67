"""Range headers that mean something; the others are ignored, as HTTP allows and who reads files here does not."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

# One range, of numbers that a file may have. A list of ranges would be answered in parts that no client here reads.
_RANGE = re.compile(rb"^bytes=(?:([0-9]{1,15})-([0-9]{0,15})|-(?!0+$)[0-9]{1,15})$")


def is_range(value: bytes) -> bool:
    """Whether a header asks for one part of a file, by bytes, with its end not before its beginning."""
    match = _RANGE.match(value.strip())
    if match is None:
        return False
    first, last = match.groups()
    return not (first and last) or int(first) <= int(last)


class OneRange:
    """Takes the header Range out of requests where it is not :func:`is_range`: they get the whole file."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            ranges = [value for name, value in scope["headers"] if name == b"range"]
            if ranges and not (len(ranges) == 1 and is_range(ranges[0])):
                scope = {**scope, "headers": [(n, v) for n, v in scope["headers"] if n != b"range"]}
        await self.app(scope, receive, send)
