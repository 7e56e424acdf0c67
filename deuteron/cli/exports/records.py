"""Records as they are: JSON, and a table."""

from __future__ import annotations

import csv
import json
from typing import TextIO

from .format import ExportSource, TextFormat


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
                record.kernel_name,
                record.kernel_hash,
                record.device.key,
                record.shape_key,
                record.dtype,
                json.dumps(dict(record.config)),
                record.time_ns.median,
                record.default_time_ns.median,
                record.speedup.median,
                record.speedup.low,
                record.speedup.high,
                record.verdict,
                record.trials,
                record.created_at,
            ]
        )


JSON = TextFormat("json", "the records", write_json)
CSV = TextFormat("csv", "a table", write_csv)
