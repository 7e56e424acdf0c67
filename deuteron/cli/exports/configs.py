"""Configurations as Python: lists for ``@autotune``, and a module that picks one for a launch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TextIO

from .format import ExportSource, TextFormat
from .legality import FUNCTIONS, legality_text
from .names import python_name

if TYPE_CHECKING:
    from deuteron.tuner.codec import Scalar

#: Schedule options that Triton's ``Config`` takes, too.
TRITONS = ("num_warps", "num_stages", "maxnreg")

_DISPATCH = '''"""Configurations that deuteron found, for kernels under Triton.

kernel[grid](..., **config_for("kernel", "f16", M=4096, N=4096, K=4096).all_kwargs())
"""

import math

import triton

#: The farthest shape whose configuration is given: 8 times in one size, or 4.3 times in each of two.
FARTHEST = %s

%s

#: Kernel and dtype -> device -> shapes, functions that say at which others their configurations may be used, and these.
CONFIGS = {
%s}


def config_for(kernel, dtype, device=None, **shape):
    """The configuration of the shape nearest to this one (in log2 of its sizes), of those tuned for this kernel, dtype
    and device that are legal here; without ``device`` there has to be one device only. Raises KeyError where nothing
    fits, or nothing near enough: use the kernel's own default there."""
    devices = CONFIGS[kernel, dtype]
    if device is None and len(devices) > 1:
        raise KeyError(f"{kernel} was tuned for {', '.join(devices)}: say which device this is")
    tuned = devices[device] if device is not None else next(iter(devices.values()))
    known = [found for found in tuned if found[0].keys() == shape.keys()]
    if not known:
        raise KeyError(f"{kernel} was tuned over {', '.join(tuned[0][0])}, not {', '.join(shape) or 'nothing'}")

    def distance(sizes):
        return round(sum((math.log2(max(1, sizes[d])) - math.log2(max(1, shape[d]))) ** 2 for d in shape), 12)

    near = [(distance(sizes), sizes, legal, config) for sizes, legal, config in known if distance(sizes) <= FARTHEST]
    for _, sizes, legal, config in sorted(near, key=lambda found: found[0]):
        if sizes == shape or is_legal(legal, shape):
            return config
    raise KeyError(f"no configuration of {kernel} may be used for {shape}: {len(near)} were tuned near enough")


def is_legal(legal, shape):
    try:
        return legal(**shape)
    except (ArithmeticError, TypeError, ValueError):
        return False
'''


def write_python(source: ExportSource, file: TextIO) -> None:
    """Per kernel a list of distinct ``Config``s for ``@triton.autotune(configs=...)``."""
    from deuteron.compiler import SCHEDULE_OPTIONS  # lazy: help starts without the compiler

    configs: dict[str, dict[str, None]] = {}
    for record in source.standing():
        configs.setdefault(record.kernel_name, {})[config_text(record.config, SCHEDULE_OPTIONS, SCHEDULE_OPTIONS)] = (
            None
        )
    file.write("import deuteron as triton\n")
    for kernel, lines in configs.items():
        file.write(f"\n{python_name(kernel, 'the kernel').upper()}_CONFIGS = [\n")
        file.writelines(f"    {line},\n" for line in lines)
        file.write("]\n")


def write_dispatch(source: ExportSource, file: TextIO) -> None:
    """A module for users of Triton, which needs nothing else: ``config_for`` gives what a lookup gives. Options of
    schedules that Triton does not know are left out. Of several records of a shape the first answers, and where it may
    not, the next."""
    from deuteron.compiler import SCHEDULE_OPTIONS  # lazy: help starts without the compiler
    from deuteron.tuner.records.lookup import FARTHEST  # lazy: help starts without the tuner

    tables: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for record in source.ranked():
        config = config_text(record.config, SCHEDULE_OPTIONS, TRITONS)
        line = f"({dict(record.shape)!r}, {legality_text(record)}, {config})"
        devices = tables.setdefault((record.kernel_name, record.dtype), {})
        devices.setdefault(record.device.key, {})[line] = None
    text = ""
    for key, devices in tables.items():
        text += f"    {key!r}: {{\n"
        for device, lines in devices.items():
            text += f"        {device!r}: [\n" + "".join(f"            {line},\n" for line in lines) + "        ],\n"
        text += "    },\n"
    file.write(_DISPATCH % (FARTHEST, FUNCTIONS, text))


def config_text(config: Mapping[str, Scalar], schedule: Iterable[str], kept: Iterable[str]) -> str:
    """``triton.Config(...)``: the kernel's parameters in its dictionary, of the schedule's options those ``kept``."""
    values = {n: v for n, v in config.items() if n not in schedule}
    options = "".join(f", {n}={v!r}" for n, v in config.items() if n in kept)
    return f"triton.Config({values!r}{options})"


PYTHON = TextFormat("python", "Config(...) lists for @autotune", write_python)
DISPATCH = TextFormat("dispatch", "a module for Triton that picks one for a shape", write_dispatch)
