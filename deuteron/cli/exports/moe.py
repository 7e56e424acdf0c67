"""Files of tile sizes for fused mixture-of-experts kernels, as vLLM and SGLang read them.

One file for each number of experts E, width N, device and dtype: JSON, from the number of tokens M to a configuration.
Both take the M that is nearest to the one at hand.

vLLM looks in the folder that VLLM_TUNED_CONFIG_FOLDER names, then among its own. SGLang looks in
``configs/triton_<version>`` below SGLANG_MOE_CONFIG_DIR, first for its own version of Triton, then for others. Their
names of one file differ in the spaces of a block shape, and in the device: white space and slashes are underscores for
vLLM, and every board of the H200 family is NVIDIA_H200; for SGLang only spaces are replaced. Products of 8-bit integers
have a dtype in SGLang's names and none in those that vLLM looks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..errors import CommandError
from .format import ExportSource, FolderFormat

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
#: The part of SGLang's names that says what is multiplied; 16-bit floats have none.
_SGLANG_DTYPES = {"f16": "", "bf16": "", "f32": ",dtype=float32", "f8e4m3": ",dtype=fp8_w8a8", "i8": ",dtype=int8_w8a8"}
#: vLLM has files named int8_w8a8, but asks for those of 16-bit floats when it multiplies 8-bit integers.
_VLLM_DTYPES = {**_SGLANG_DTYPES, "i8": ""}
#: Sizes of a shape that give the block of one scale, as these kernels call them; 0 where there is one scale for all.
_SCALE_BLOCK = ("group_n", "group_k")


def vllm_files(source: ExportSource) -> dict[str, str]:
    """The text of each file by its name, from records whose shapes have the sizes E, N and M.

    Raises:
        CommandError: a record is of another kind, lacks a parameter, or two give different answers for one file and M.
    """
    return _files(source, _vllm_name)


def sglang_files(source: ExportSource) -> dict[str, str]:
    """The text of each file by its path below SGLANG_MOE_CONFIG_DIR.

    Raises:
        CommandError: as :func:`vllm_files`; or nobody said which Triton the files are for.
    """
    if not re.fullmatch(r"\d+(\.\d+)+", source.triton):
        raise CommandError(
            "--format sglang needs the version of its Triton" + (f", not {source.triton!r}" if source.triton else ""),
            hint='--triton 3.6.0: what python -c "import triton; print(triton.__version__)" prints there',
        )
    folder = f"configs/triton_{source.triton.replace('.', '_')}"
    return {f"{folder}/{name}": text for name, text in _files(source, _sglang_name).items()}


def _files(source: ExportSource, named: Callable[[ConfigRecord], str]) -> dict[str, str]:
    files: dict[str, dict[int, ConfigRecord]] = {}
    for record in source.standing():
        _require_experts(record)
        name, tokens = named(record), record.shape["M"]
        held = files.setdefault(name, {}).setdefault(tokens, record)
        if _values(held) != _values(record):
            raise CommandError(
                f"{name} has two configurations for M={tokens}: of {_place(held)}; and of {_place(record)}",
                hint=_narrowing(held, record),
            )
    return {
        name: json.dumps({tokens: _values(held[tokens]) for tokens in sorted(held)}, indent=4) + "\n"
        for name, held in files.items()
    }


def _place(record: ConfigRecord) -> str:
    return f"{record.kernel_name}, {record.shape_key}, {record.dtype}, {record.device.key}"


def _narrowing(first: ConfigRecord, second: ConfigRecord) -> str:
    """What tells two records apart that are for one file."""
    if first.kernel_name != second.kernel_name:
        return f"choose one kernel: --kernel {first.kernel_name}"
    if first.dtype != second.dtype:
        return f"the file is for both dtypes, choose one: --dtype {first.dtype}"
    if first.device.key != second.device.key:
        return f"the file is for both devices, choose one: --device {first.device.key}"
    sizes = [dim for dim in first.shape if first.shape[dim] != second.shape.get(dim)]
    return f"such files know no {', '.join(sizes) or 'other sizes'}: export a bundle that has one of each"


def _require_experts(record: ConfigRecord) -> None:
    missing = [dim for dim in ("E", "N", "M") if dim not in record.shape]
    if missing:
        raise CommandError(
            f"{record.kernel_name} was tuned over {record.shape_key}, without {', '.join(missing)}",
            hint="such files are for kernels with the sizes E (experts), N and M (tokens)",
        )
    if record.dtype not in _SGLANG_DTYPES:
        known = ", ".join(_SGLANG_DTYPES)
        raise CommandError(f"there is no such file for {record.dtype}", hint=f"there is for {known}")


def _vllm_name(record: ConfigRecord) -> str:
    device = re.sub(r"[\s/]+", "_", record.device.name)
    if "H200" in device.split("_"):
        device = "NVIDIA_H200"
    return _name(record, device, _VLLM_DTYPES[record.dtype] + _scale_block(record.shape, ","))


def _sglang_name(record: ConfigRecord) -> str:
    selectors = _SGLANG_DTYPES[record.dtype] + _scale_block(record.shape, ", ")
    return _name(record, record.device.name.replace(" ", "_"), selectors)


def _name(record: ConfigRecord, device: str, selectors: str) -> str:
    return f"E={record.shape['E']},N={record.shape['N']},device_name={device}{selectors}.json"


def _scale_block(shape: Mapping[str, int], comma: str) -> str:
    sizes = [shape.get(dim, 0) for dim in _SCALE_BLOCK]
    return f",block_shape=[{comma.join(map(str, sizes))}]" if all(sizes) else ""


def _values(record: ConfigRecord) -> dict[str, object]:
    values: dict[str, object] = {}
    for wanted, spellings in _PARAMETERS.items():
        found = [record.config[spelling] for spelling in spellings if spelling in record.config]
        if not found:
            raise CommandError(
                f"the configuration of {record.kernel_name} for {record.shape_key} has no {' or '.join(spellings)}",
                hint="these kernels take " + ", ".join(_PARAMETERS),
            )
        values[wanted] = found[0]
    return values


VLLM = FolderFormat("vllm", "files of vLLM's fused mixture-of-experts kernels", vllm_files)
SGLANG = FolderFormat("sglang", "the same for SGLang, for its version of Triton", sglang_files)
