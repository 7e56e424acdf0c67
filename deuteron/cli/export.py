"""Configurations of a bundle for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord


def write_json(records: Iterable[ConfigRecord], file: TextIO) -> None:
    """A list of records, one a line, written as they are read."""
    file.write("[")
    for number, record in enumerate(records):
        file.write(",\n" if number else "\n")
        file.write(json.dumps(record.to_json()))
    file.write("\n]\n")


def write_csv(records: Iterable[ConfigRecord], file: TextIO) -> None:
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
    for record in records:
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


def write_python(records: Iterable[ConfigRecord], file: TextIO) -> None:
    """Per kernel a list of distinct ``Config``s for ``@triton.autotune(configs=...)``, in order of appearance."""
    from deuteron.compiler import SCHEDULE_OPTIONS  # lazy: help starts without the compiler

    configs: dict[str, dict[str, None]] = {}
    for record in records:
        values = {n: v for n, v in record.config.items() if n not in SCHEDULE_OPTIONS}
        options = "".join(f", {n}={v!r}" for n, v in record.config.items() if n in SCHEDULE_OPTIONS)
        line = f"triton.Config({values!r}{options})"
        configs.setdefault(record.kernel_name, {})[line] = None
    file.write("import deuteron as triton\n")
    for kernel, lines in configs.items():
        file.write(f"\n{kernel.upper()}_CONFIGS = [\n")
        file.writelines(f"    {line},\n" for line in lines)
        file.write("]\n")


WRITERS: dict[str, Callable[[Iterable[ConfigRecord], TextIO], None]] = {
    "csv": write_csv,
    "json": write_json,
    "python": write_python,
}
