"""A module that puts stored configurations into the cache of Triton's own ``@autotune``.

Triton (3.6 and 3.9 were tried) keeps what ``@autotune(cache_results=True)`` or TRITON_CACHE_AUTOTUNING=1 measured in
``<TRITON_CACHE_DIR>/<key>/<kernel>.autotune.json``. The key digests Triton's own files, the target with its assembler,
the kernel's text, the values of the tuning key and every configuration of the kernel's list: only the process that will
launch the kernel can compute it. So the export is not that file but a module which, there, lets Triton itself write it,
through the method that reads and writes it (``check_disk_cache``) with stored times in the place of measured ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from .configs import TRITONS, config_text
from .format import ExportSource, TextFormat

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord
    from deuteron.tuner.measure.statistics import Interval

_MODULE = '''"""Configurations that deuteron found, for the cache of Triton's @autotune.

With the arguments of a launch, in the process that will launch, or in one with the same Triton, GPU and environment:

    remember(kernel, "f16", {"M": 4096, "N": 4096}, x, out, 4096, 4096)

From then on @autotune(cache_results=True), or TRITON_CACHE_AUTOTUNING=1, takes the stored configuration for them.
"""

import triton

#: Kernel and dtype -> device -> shapes with their timings in ms: median, low, high of each configuration.
TIMINGS = {
%s}


def timings_of(kernel_name, dtype, shape, device=None):
    """What was measured of this kernel, dtype, shape and device: a list of configurations and times, the best first.
    Raises KeyError where nothing was; without ``device`` there has to be one device only."""
    devices = TIMINGS[kernel_name, dtype]
    if device is None and len(devices) > 1:
        raise KeyError(f"{kernel_name} was tuned for {', '.join(devices)}: say which device this is")
    tuned = devices[device] if device is not None else next(iter(devices.values()))
    for sizes, timings in tuned:
        if sizes == dict(shape):
            return timings
    raise KeyError(f"{kernel_name} was tuned for {', '.join(str(sizes) for sizes, _ in tuned)}, not {dict(shape)}")


def remember(kernel, dtype, shape, *args, device=None, **kwargs):
    """Put what was measured for ``shape`` into Triton's cache, for launches of ``kernel`` (an @autotune'd one) with the
    tuning key that ``args`` and ``kwargs`` give. False: the cache has results for this key already; they stay."""
    timings = timings_of(kernel.base_fn.__name__, dtype, shape, device)
    kernel.nargs = dict(zip(kernel.arg_names, args))
    given = {name: value for name, value in {**kernel.nargs, **kwargs}.items() if name in kernel.arg_names}
    key = [given[name] for name in kernel.keys if name in given]
    key = tuple(key + [str(value.dtype) for value in given.values() if hasattr(value, "dtype")])
    if not key or any(config.pre_hook for config in kernel.configs):
        raise ValueError("Triton caches nothing of kernels without a tuning key, or with a pre_hook in a configuration")
    pruned = kernel.prune_configs(kwargs)
    if len(pruned) < 2:
        raise ValueError("Triton looks into its cache only where it has two configurations to choose from")

    def stored():
        kernel.configs_timings = dict(timings)
        kernel.cache[key] = timings[0][0]

    return not kernel.check_disk_cache(key, pruned, stored)
'''


def write_triton_cache(source: ExportSource, file: TextIO) -> None:
    """The module; schedule options that Triton does not know are left out."""
    from deuteron.compiler import SCHEDULE_OPTIONS  # lazy: help starts without the compiler

    tables: dict[tuple[str, str], dict[str, list[str]]] = {}
    for record in source.standing():
        lines = [f"                {line},\n" for line in _timings(record, SCHEDULE_OPTIONS)]
        entry = f"            ({dict(record.shape)!r}, [\n{''.join(lines)}            ]),\n"
        devices = tables.setdefault((record.kernel_name, record.dtype), {})
        devices.setdefault(record.device.key, []).append(entry)
    text = ""
    for key, devices in tables.items():
        made = "".join(f"        {device!r}: [\n{''.join(entries)}        ],\n" for device, entries in devices.items())
        text += f"    {key!r}: {{\n{made}    }},\n"
    file.write(_MODULE % text)


def _timings(record: ConfigRecord, schedule: tuple[str, ...]) -> list[str]:
    """``(Config, [median, low, high])`` of the best and, where it is another, of the default."""
    made: dict[str, list[float]] = {}
    for config, interval in ((record.config, record.time_ns), (record.default_config, record.default_time_ns)):
        made.setdefault(config_text(config, schedule, TRITONS), _times(interval))
    return [f"({config}, {times})" for config, times in made.items()]


def _times(interval: Interval) -> list[float]:
    return [ns / 1e6 for ns in (interval.median, interval.low, interval.high)]


TRITON_CACHE = TextFormat("triton-cache", "a module that fills the cache of Triton's @autotune", write_triton_cache)
