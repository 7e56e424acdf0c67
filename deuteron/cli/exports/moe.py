"""Files of tile sizes for fused mixture-of-experts kernels, as vLLM and SGLang read them.

One file for each number of experts E, width N, device and dtype: JSON, from the number of tokens M to a configuration.
vLLM looks for it in the folder that VLLM_TUNED_CONFIG_FOLDER names, then among its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import CommandError

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord

#: What these kernels call their parameters -> how tile programs often call them.
_PARAMETERS = {
    "BLOCK_SIZE_M": ("BLOCK_SIZE_M", "BLOCK_M"),
    "BLOCK_SIZE_N": ("BLOCK_SIZE_N", "BLOCK_N"),
    "BLOCK_SIZE_K": ("BLOCK_SIZE_K", "BLOCK_K"),
    "GROUP_SIZE_M": ("GROUP_SIZE_M", "GROUP_M"),
    "num_warps": ("num_warps",),
    "num_stages": ("num_stages",),
}
#: The part of the name that says what is multiplied; 16-bit floats have none.
_DTYPES = {"f16": "", "bf16": "", "f32": ",dtype=float32", "f8e4m3": ",dtype=fp8_w8a8"}


def moe_files(records: Iterable[ConfigRecord]) -> dict[str, str]:
    """The text of each file by its name, from records whose shapes have the sizes E, N and M.

    Raises:
        CommandError: a record is of another kind, lacks a parameter, or two give different answers for one file and M.
    """
    files: dict[str, dict[int, dict[str, object]]] = {}
    for record in records:
        name, tokens, values = _file_name(record), record.shape["M"], _values(record)
        held = files.setdefault(name, {})
        if held.setdefault(tokens, values) != values:
            raise CommandError(
                f"{name} has two configurations for M={tokens}, the second of {record.shape_key}",
                hint="narrow the bundle to one kernel: deuteron cache pull --kernel HASH",
            )
    return {name: json.dumps(dict(sorted(held.items())), indent=4) + "\n" for name, held in files.items()}


def _file_name(record: ConfigRecord) -> str:
    missing = [dim for dim in ("E", "N", "M") if dim not in record.shape]
    if missing:
        raise CommandError(
            f"{record.kernel_name} was tuned over {record.shape_key}, without {', '.join(missing)}",
            hint="such files are for kernels with the sizes E (experts), N and M (tokens)",
        )
    if record.dtype not in _DTYPES:
        raise CommandError(f"there is no such file for {record.dtype}", hint=f"there is for {', '.join(_DTYPES)}")
    device = record.device.name.replace(" ", "_")
    return f"E={record.shape['E']},N={record.shape['N']},device_name={device}{_DTYPES[record.dtype]}.json"


def _values(record: ConfigRecord) -> dict[str, object]:
    values: dict[str, object] = {}
    for wanted, spellings in _PARAMETERS.items():
        found = [record.config[spelling] for spelling in spellings if spelling in record.config]
        if not found:
            raise CommandError(
                f"the configuration of {record.kernel_name} for {record.shape_key} has no {' or '.join(spellings)}",
                hint="vLLM's kernel takes " + ", ".join(_PARAMETERS),
            )
        values[wanted] = found[0]
    return values
