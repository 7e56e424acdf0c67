"""Server-Sent Events, read line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from deuteron.tuner.codec import expect_object, parse_json
from deuteron.tuner.errors import SchemaError

from .answers import RemoteEvent

#: Bytes of a line. An event has a trial, which is some kilobytes.
MOST_LINE = 16 << 20


def read_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream that arrives in pieces; an end without an end of line is none. Raises
    :class:`SchemaError` for what is no text, and for a line that does not end."""
    begun = bytearray()
    for piece in pieces:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            begun += end
            yield _text(begun)
            begun.clear()
        begun += rest
        if len(begun) > MOST_LINE:
            raise SchemaError(f"events: a line of more than {MOST_LINE} bytes")


def parse_events(lines: Iterable[str]) -> Iterator[RemoteEvent]:
    """Complete events of a stream; one that was cut off by a lost connection is not among them. Raises
    :class:`SchemaError` for what is no event of a job."""
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
    number = fields["id"]
    if not (number.isascii() and number.isdecimal() and len(number) < 20):
        raise SchemaError(f"events: {number[:40]!r} is no number of an event")
    data = expect_object(parse_json(fields["data"], f"event {number}"), f"event {number}")
    return RemoteEvent(int(number), fields.get("event", "message"), data)


def _text(line: bytearray) -> str:
    try:
        return line.decode().removesuffix("\r")
    except UnicodeDecodeError:
        raise SchemaError("events: a line is no UTF-8 text") from None
