"""Configurations as ``helion.Config.load`` reads them: a JSON file for each kernel, dtype, shape and device.

Helion knows tiles by their order, not by name: ``block_sizes`` are the parameters that begin with BLOCK, in the order
of the configuration, which has to be that of the Helion kernel's tiles. GROUP parameters are ``l2_groupings``. What
Helion has no key for must be a tunable that the kernel registers under the same name: it refuses other keys.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..errors import CommandError
from .format import ExportSource, FolderFormat

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord

_BLOCK, _GROUP = "BLOCK", "GROUP"
#: Schedule options that are keys of Helion's configurations, and the values that it takes. It has no others.
_SCHEDULE: dict[str, tuple[object, ...]] = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": tuple(range(1, 9)),
    "maxnreg": (32, 64, 128, 256),
}


def helion_files(source: ExportSource) -> dict[str, str]:
    """The text of each file by its name: ``<kernel>,<dtype>,<shape>,<device>.json``.

    Raises:
        CommandError: a value is none that Helion takes, or two records give one file.
    """
    files: dict[str, str] = {}
    for record in source.records:
        device = record.device.key.replace("/", "-")
        name = f"{record.kernel_name},{record.dtype},{record.shape_key},{device}.json"
        text = json.dumps(_config(record), indent=2) + "\n"
        if files.setdefault(name, text) != text:
            raise CommandError(
                f"there are two configurations for {name}",
                hint="narrow the bundle to one text of the kernel: deuteron cache pull --kernel HASH",
            )
    return files


def _config(record: ConfigRecord) -> dict[str, object]:
    from deuteron.compiler import SCHEDULE_OPTIONS  # lazy: help starts without the compiler

    blocks = {name: value for name, value in record.config.items() if name.startswith(_BLOCK)}
    groups = [value for name, value in record.config.items() if name.startswith(_GROUP)]
    made: dict[str, object] = {"block_sizes": list(blocks.values())}
    if groups:
        made["l2_groupings"] = groups
    for name, value in record.config.items():
        if name in blocks and not _is_power_of_2(value):
            raise _refused(record, name, "powers of 2")
        if name in _SCHEDULE and value not in _SCHEDULE[name]:
            raise _refused(record, name, ", ".join(map(str, _SCHEDULE[name])))
        if name in _SCHEDULE or not (name.startswith((_BLOCK, _GROUP)) or name in SCHEDULE_OPTIONS):
            made[name] = value
    return made


def _is_power_of_2(value: object) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def _refused(record: ConfigRecord, name: str, takes: str) -> CommandError:
    value = record.config[name]
    return CommandError(f"Helion does not take {name} = {value!r} (of {record.shape_key})", hint=f"it takes {takes}")


HELION = FolderFormat("helion", "files for helion.Config.load", helion_files)
