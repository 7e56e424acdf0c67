"""Source lines of machine code: the sections of a cubin, and the line table in its ``.debug_line``.

A cubin is a 64-bit ELF file. ptxas writes line tables of DWARF 2 (DWARF Debugging Information Format, 6.2); versions
to 4 are read. A cubin of ours has one kernel, so addresses are offsets from its beginning.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import MalformedProfile

_NO_BITS = 8  # ELF's type of sections that have no bytes in the file
# Standard opcodes of line programs, and the extended ones that say where a sequence begins and ends.
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE = 1, 2, 3, 4
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


class SourceLine(NamedTuple):
    """A line of a source file, as the compiler named the file."""

    file: str
    line: int


def sections(image: bytes) -> dict[str, bytes]:
    """The sections of a cubin by name. Raises MalformedProfile for what is no 64-bit ELF file."""
    if image[:5] != b"\x7fELF\x02":
        raise MalformedProfile("machine code is not a 64-bit ELF file", hint="only cubins have line tables")
    try:
        (table,) = struct.unpack_from("<Q", image, 40)
        count, names = struct.unpack_from("<HH", image, 60)
        heads = [struct.unpack_from("<IIQQQQ", image, table + 64 * number) for number in range(count)]
        texts = heads[names][4]
        found = {}
        for name, kind, _, _, offset, size in heads:
            end = image.index(b"\0", texts + name)
            found[image[texts + name : end].decode()] = b"" if kind == _NO_BITS else image[offset : offset + size]
    except (struct.error, ValueError, IndexError) as error:
        raise MalformedProfile("machine code is a damaged ELF file", hint="compile the kernel again") from error
    return found


class LineTable:
    """Which line each address of a kernel comes from. Raises MalformedProfile for a table that cannot be read."""

    def __init__(self, section: bytes) -> None:
        rows = []
        try:
            at = 0
            while at < len(section):
                unit = _Unit(section, at)
                rows += list(unit.rows())
                at = unit.end
        except (struct.error, ValueError, IndexError) as error:
            raise MalformedProfile("a line table cannot be read", hint="DWARF 2 to 4 can") from error
        rows.sort(key=lambda row: row[0])  # stable: of several rows for an address the last one counts
        self._addresses = [address for address, _ in rows]
        self._places = [place for _, place in rows]

    def at(self, address: int) -> SourceLine | None:
        """Where the instruction at an offset comes from; None for one that comes from no line."""
        found = bisect_right(self._addresses, address) - 1
        return self._places[found] if found >= 0 else None


@dataclass
class _Reader:
    data: bytes
    at: int

    def take(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.at += struct.calcsize(f"<{layout}")
        return values

    def number(self, *, signed: bool = False) -> int:
        """One in LEB128."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found, self.at = self.data[self.at : end].decode(errors="replace"), end + 1
        return found


class _Unit:
    """The line program of one compilation unit."""

    def __init__(self, section: bytes, begin: int) -> None:
        self._reader = reader = _Reader(section, begin)
        length, version = reader.take("IH")
        if version > 4:
            raise ValueError(f"DWARF {version}")
        self.end = begin + 4 + length
        (header,) = reader.take("I")
        program = reader.at + header
        (self._step,) = reader.take("B")
        if version >= 4:
            reader.take("B")  # operations of an instruction
        _, self._base, self._span, self._first_special = reader.take("BbBB")
        self._operands = reader.take("B" * (self._first_special - 1))
        self._files = [""]
        folders = [""]
        while folder := reader.text():
            folders.append(folder)
        while name := reader.text():
            folder = folders[reader.number()]
            reader.number(), reader.number()  # time and size
            self._files.append(name if name.startswith("/") or not folder else f"{folder}/{name}")
        reader.at = program

    def rows(self) -> Iterator[tuple[int, SourceLine | None]]:
        """Addresses from which a place holds, up to the next one."""
        reader = self._reader
        address, file, line = 0, 1, 1
        while reader.at < self.end:
            (code,) = reader.take("B")
            if code >= self._first_special:
                advance, steps = (code - self._first_special) // self._span, (code - self._first_special) % self._span
                address += advance * self._step
                line += self._base + steps
                yield address, self._place(file, line)
            elif code == 0:
                size = reader.number()
                end = reader.at + size
                (kind,) = reader.take("B")
                if kind == _END_SEQUENCE:
                    yield address, None
                    address, file, line = 0, 1, 1
                elif kind == _SET_ADDRESS:
                    (address,) = reader.take("Q")
                reader.at = end
            elif code == _COPY:
                yield address, self._place(file, line)
            elif code == _ADVANCE_PC:
                address += reader.number() * self._step
            elif code == _ADVANCE_LINE:
                line += reader.number(signed=True)
            elif code == _SET_FILE:
                file = reader.number()
            elif code == _CONST_ADD_PC:
                address += (255 - self._first_special) // self._span * self._step
            elif code == _FIXED_ADVANCE_PC:
                address += reader.take("H")[0]
            else:
                for _ in range(self._operands[code - 1]):
                    reader.number()

    def _place(self, file: int, line: int) -> SourceLine | None:
        """Line 0 stands for none."""
        return SourceLine(self._files[file], line) if line else None
