"""Configurations as ``helion.Config.load`` reads them: a JSON file for each kernel, dtype, shape and device.

Helion knows tiles by their order, not by name: ``block_sizes`` are the parameters that begin with BLOCK, in the order
of the Helion kernel's tiles. A record does not know that order (its names are sorted), so who exports several says it.
GROUP parameters are ``l2_groupings``. A persistent kernel, whose blocks walk over the tiles in steps of all blocks, is
``pid_type`` persistent_interleaved. What Helion has no key for must be a tunable that the kernel registers under the
same name: it refuses other keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import CommandError
from .format import ExportSource, FolderFormat

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord

_BLOCK, _GROUP = "BLOCK", "GROUP"
#: Schedule options that are keys of Helion's configurations, and the values that it takes.
_SCHEDULE: dict[str, tuple[object, ...]] = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": tuple(range(1, 9)),
    "maxnreg": tuple(range(1, 257)),
}


def helion_files(source: ExportSource) -> dict[str, str]:
    """The text of each file by its name: ``<kernel>,<dtype>,<shape>,<device>.json``.

    Raises:
        CommandError: a value is none that Helion takes, nobody said which block is which, or two records give one file.
    """
    files: dict[str, str] = {}
    for record in source.standing():
        device = record.device.key.replace("/", "-")
        name = f"{record.kernel_name},{record.dtype},{record.shape_key},{device}.json"
        text = json.dumps(_config(record, source.blocks), indent=2) + "\n"
        if files.setdefault(name, text) != text:
            raise CommandError(
                f"there are two configurations for {name}",
                hint=f"the names of two devices are one there, choose one: --device {record.device.key}",
            )
    return files


def _config(record: ConfigRecord, order: Sequence[str]) -> dict[str, object]:
    from deuteron.compiler import SCHEDULE_OPTIONS  # lazy: help starts without the compiler

    config = record.config
    blocks, groups = _ordered(record, order), [name for name in config if name.startswith(_GROUP)]
    made: dict[str, object] = {"block_sizes": [config[name] for name in blocks]}
    if groups:
        made["l2_groupings"] = [config[name] for name in groups]
    if config.get("persistent"):
        made["pid_type"] = "persistent_interleaved"
    elif "maxnreg" in config:
        raise _refused(record, "maxnreg", "it of persistent kernels only")
    for name, value in config.items():
        if name in (*blocks, *groups) and not _is_power_of_2(value):
            raise _refused(record, name, "powers of 2")
        if name in _SCHEDULE and value not in _SCHEDULE[name]:
            raise _refused(record, name, f"{_SCHEDULE[name][0]} to {_SCHEDULE[name][-1]}")
        if name in _SCHEDULE or not (name in (*blocks, *groups) or name in SCHEDULE_OPTIONS):
            made[name] = value
    return made


def _ordered(record: ConfigRecord, order: Sequence[str]) -> Sequence[str]:
    """The names of the block sizes in the order of the tiles."""
    names = [name for name in record.config if name.startswith(_BLOCK)]
    if not order and len(names) > 1:
        raise CommandError(
            f"--format helion needs the order in which the Helion kernel has the blocks of {record.kernel_name}",
            hint=f"--blocks {','.join(names)}, in the order of its tiles",
        )
    if not names:
        raise CommandError(
            f"the configuration of {record.kernel_name} for {record.shape_key} has no block sizes, which Helion needs",
            hint="they are parameters that begin with BLOCK; it has " + ", ".join(record.config),
        )
    if order and set(order) != set(names):
        raise CommandError(
            f"--blocks names {', '.join(order)}; the configuration of {record.kernel_name} for {record.shape_key} has "
            f"{', '.join(names)}",
            hint="each of them once",
        )
    return order or names


def _is_power_of_2(value: object) -> bool:
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


def _refused(record: ConfigRecord, name: str, takes: str) -> CommandError:
    value = record.config[name]
    return CommandError(f"Helion does not take {name} = {value!r} (of {record.shape_key})", hint=f"it takes {takes}")


HELION = FolderFormat("helion", "files for helion.Config.load", helion_files)
