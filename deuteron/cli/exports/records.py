"""Records as they are: JSON, and a table."""

from __future__ import annotations

import csv
import json
from typing import TextIO

from deuteron.compiler.printable import printable_line

from .format import ExportSource, TextFormat

#: What a formula begins with, also in the wide forms that some programs take for the same.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_json(source: ExportSource, file: TextIO) -> None:
    """A list of records, one a line, written as they are read."""
    file.write("[")
    for number, record in enumerate(source.records):
        file.write(",\n" if number else "\n")
        file.write(json.dumps(record.to_json()))
    file.write("\n]\n")


def write_csv(source: ExportSource, file: TextIO) -> None:
    """A table with one row a record; the configuration is JSON in its column. Times in ns."""
    table = csv.writer(file, lineterminator="\n")
    table.writerow(
        [
            "kernel",
            "kernel_hash",
            "device",
            "shape",
            "dtype",
            "config",
            "time_ns",
            "default_time_ns",
            "speedup",
            "speedup_low",
            "speedup_high",
            "verdict",
            "trials",
            "created_at",
        ]
    )
    for record in source.records:
        table.writerow(
            [
                _text_cell(record.kernel_name),
                _text_cell(record.kernel_hash),
                _text_cell(record.device.key),
                _text_cell(record.shape_key),
                _text_cell(record.dtype),
                json.dumps(dict(record.config)),
                record.time_ns.median,
                record.default_time_ns.median,
                record.speedup.median,
                record.speedup.low,
                record.speedup.high,
                record.verdict,
                record.trials,
                _text_cell(record.created_at),
            ]
        )


def _text_cell(text: str) -> str:
    """Text from elsewhere that no spreadsheet takes for a formula and no terminal for a command: a quote before what
    would begin one (OWASP, CSV Injection), and escapes for control characters."""
    text = printable_line(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


JSON = TextFormat("json", "the records", write_json)
CSV = TextFormat("csv", "a table", write_csv)
