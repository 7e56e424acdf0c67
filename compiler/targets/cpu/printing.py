"""What tl.device_print shows: one line for each element."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...tile.debug import index_text, label_text

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class PrintRecord:
    """One print statement: prefix, whether integers are shown in hex, element type and shape of each value."""

    prefix: str
    hex: bool
    values: tuple[tuple[str, tuple[int, ...]], ...]

    @staticmethod
    def from_json(held: Mapping[str, object]) -> PrintRecord:
        """The record that was written as JSON; raises TypeError unless ``values`` is a list."""
        values = held["values"]
        if not isinstance(values, list):
            raise TypeError("print records hold a list of values")
        pairs = tuple((str(name), tuple(int(n) for n in shape)) for name, shape in values)
        return PrintRecord(str(held["prefix"]), bool(held["hex"]), pairs)


def print_values(record: PrintRecord, program: tuple[int, int, int], table: int) -> None:
    """Print the values whose addresses stand at ``table``."""
    where = f"pid ({', '.join(map(str, program))})"
    lines = [] if record.values else [f"{where} {record.prefix}"]
    for number, (name, shape) in enumerate(record.values):
        address = ctypes.c_uint64.from_address(table + 8 * number).value
        array = _array(address, name, shape)
        label = label_text(record.prefix, number, len(record.values))
        in_hex = record.hex or name.startswith("*")
        for index in _indices(shape):
            lines.append(f"{where} {index_text(index, shape)}{label}{_text(array[index], in_hex)}")
    print("\n".join(lines), flush=True)


def _indices(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    import numpy as np

    return [tuple(int(i) for i in index) for index in np.ndindex(shape)]


def _array(address: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
    import numpy as np

    dtype = _dtype(name)
    size = dtype.itemsize
    for n in shape:
        size *= n
    data = ctypes.string_at(address, size)
    return np.frombuffer(data, dtype).reshape(shape)


def _dtype(name: str) -> np.dtype:
    import ml_dtypes
    import numpy as np

    special = {
        "i1": np.dtype(np.bool_),
        "bf16": np.dtype(ml_dtypes.bfloat16),
        "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
        "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    }
    if name.startswith("*"):
        return np.dtype(np.uint64)
    if name in special:
        known: np.dtype = special[name]
        return known
    kind = "float" if name[0] == "f" else "uint" if name[0] == "u" else "int"
    return np.dtype(f"{kind}{name[1:]}")


def _text(value: np.generic, in_hex: bool) -> str:
    """Floats with six decimals as printf's %f, the rest as integers; the interpreter prints the same."""
    import numpy as np

    if in_hex:
        digits = 2 * value.dtype.itemsize
        bits = np.asarray(value).view(f"uint{4 * digits}").item()
        return f"0x{bits:0{digits}x}"
    kind = value.dtype.kind
    return f"{float(value):f}" if kind in "fV" else str(int(value))
