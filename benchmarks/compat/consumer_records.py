"""What the consumers of exports are compared on: made-up records, their export, and what a comparison found."""

from __future__ import annotations

import atexit
import contextlib
import io
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from deuteron.cli import main as deuteron
from deuteron.tuner import ConfigRecord, DeviceFingerprint, write_bundle
from deuteron.tuner.measure.statistics import Interval


@dataclass
class Comparison:
    """``compared``: values that the consumer loaded and that were compared with what was stored. ``differences``: a
    line for each that was another. ``counts``: what else was counted."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def same(self, what: str, loaded: object, stored: object) -> None:
        """Count, and note a difference."""
        self.compared += 1
        if loaded != stored:
            self.differences.append(f"{what}: stored {stored}, loaded {loaded}")

    def count(self, what: str) -> None:
        """One more of these."""
        self.counts[what] = self.counts.get(what, 0) + 1


def record(
    kernel: str,
    device: str,
    shape: Mapping[str, int],
    dtype: str,
    config: Mapping[str, int | bool | str],
    *,
    default: Mapping[str, int | bool | str] | None = None,
    best_ns: float = 1000.0,
) -> ConfigRecord:
    """A record of a GPU with a speed-up of 2 over the default configuration, by default half of the blocks."""
    if default is None:
        default = {name: value // 2 if name.startswith("BLOCK") else value for name, value in config.items()}
    return ConfigRecord(
        kernel_name=kernel,
        kernel_hash="0" * 64,
        device=DeviceFingerprint(kind="cuda", name=device, compute_capability=(9, 0)),
        shape=dict(shape),
        dtype=dtype,
        toolchain={"deuteron": "0"},
        config=dict(config),
        default_config=dict(default),
        time_ns=_around(best_ns),
        default_time_ns=_around(2 * best_ns),
        speedup=Interval(2.0, 1.9, 2.1, 9),
        verdict="FASTER",
        trials=9,
        checked=True,
    )


def _around(ns: float) -> Interval:
    return Interval(ns, 0.9 * ns, 1.1 * ns, 9)


def export(records: Iterable[ConfigRecord], form: str, *options: str) -> Path:
    """Write the records as ``deuteron cache export --format form`` does; the file or folder."""
    folder = Path(mkdtemp(prefix="deuteron-consumers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    write_bundle(folder / "made.bundle", sorted(records, key=lambda made: made.key))
    output = folder / form
    with contextlib.redirect_stdout(io.StringIO()):
        words = ["cache", "export", folder / "made.bundle", "--format", form, "-o", output, *options]
        code = deuteron([str(word) for word in words])
    if code != 0:
        raise SystemExit(f"the export to {form} ended with {code}")
    return output
