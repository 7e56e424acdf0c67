"""What is exported, and what a format is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

from deuteron.compiler.counting import counted

from ..errors import CommandError
from ..lookup import stands_for
from ..output import say
from ..signatures import read_signed

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord, DeviceFingerprint
    from deuteron.tuner.events import TrialFinished


@dataclass(frozen=True)
class ExportSource:
    """``records``: best configurations, all of them, read once. ``trials``: everything that a search of ``kernel``
    tried, in order; a bundle has none. ``triton``: the version of Triton that the consumer has, ``blocks``: names of
    block sizes in the order of its tiles; both are empty where nobody said."""

    records: Iterable[ConfigRecord]
    trials: Sequence[TrialFinished] = ()
    kernel: str = ""
    triton: str = ""
    blocks: tuple[str, ...] = ()

    def ranked(self) -> list[ConfigRecord]:
        """Records of the newest text of each kernel, in the order in which a lookup on this machine prefers them. Says
        how many are of older texts."""
        from deuteron.tuner.records.precedence import newest_texts, ranked  # lazy: help starts without the tuner

        records = list(self.records)
        texts = newest_texts(records)
        kept = [record for record in records if record.kernel_hash == texts[record.kernel_name]]
        for name in dict.fromkeys(record.kernel_name for record in records):
            _say_older_texts([record for record in records if record.kernel_name == name], texts[name])
        return list(ranked(kept, toolchain_key_here))

    def standing(self) -> list[ConfigRecord]:
        """Of each kernel, dtype, device and shape the record that a lookup on this machine gives. Says how many others
        there are."""
        from deuteron.tuner.records.precedence import standing  # lazy: help starts without the tuner

        ranked = self.ranked()
        found = standing(ranked, toolchain_key_here)
        if len(found) < len(ranked):
            say(
                f"{counted(len(ranked) - len(found), 'record')} left out, of shapes of which there is one of this "
                "machine's toolchain, or a newer one"
            )
        return found


def toolchain_key_here(device: DeviceFingerprint) -> str | None:
    """What this machine compiles for a device with, if it has it, as a record's ``toolchain_key``; else None."""
    from deuteron.compiler import list_devices  # lazy: help starts without the compiler
    from deuteron.tuner.codec import canonical_json  # lazy: help starts without the tuner
    from deuteron.tuner.records import DeviceFingerprint, current_toolchain  # lazy: as above

    for here in list_devices():
        if DeviceFingerprint.of(here.properties).matches(device):
            return canonical_json(current_toolchain(here))
    return None


def _say_older_texts(records: Sequence[ConfigRecord], newest: str) -> None:
    """Where a name is that of several texts: which one is exported, and how to get another."""
    older = list(dict.fromkeys(record.kernel_hash for record in records if record.kernel_hash != newest))
    if older:
        left = sum(record.kernel_hash != newest for record in records)
        say(
            f"{records[0].kernel_name}: {counted(left, 'record')} of {counted(len(older), 'older text')} left out; the "
            f"newest is {newest[:12]}, --kernel {older[0][:12]} exports another"
        )


@dataclass(frozen=True)
class Selection:
    """Which records are exported: of a kernel (its name or hash, or the hash's beginning), a dtype and a device (its
    key). What is empty selects all."""

    kernel: str = ""
    dtype: str = ""
    device: str = ""

    def of(self, source: ExportSource) -> ExportSource:
        """What of ``source`` is selected.

        Raises:
            CommandError: nothing is.
        """
        if self == Selection():
            return source
        records = list(source.records)
        kept = [record for record in records if self._has(record)]
        if not kept:
            places = dict.fromkeys(f"{r.kernel_name} ({r.kernel_hash[:12]}) {r.dtype} {r.device.key}" for r in records)
            raise CommandError("no record is of that kernel, dtype and device", hint="there are " + "; ".join(places))
        trials = [trial for trial in source.trials if self.dtype in ("", trial.dtype)]
        return replace(source, records=kept, trials=trials)

    def _has(self, record: ConfigRecord) -> bool:
        kernel = not self.kernel or stands_for(self.kernel, record)
        return kernel and self.dtype in ("", record.dtype) and self.device in ("", record.device.key)


@dataclass(frozen=True)
class TextFormat:
    """A format that is one text. ``summary``: its help."""

    name: str
    summary: str
    write: Callable[[ExportSource, TextIO], None]


@dataclass(frozen=True)
class FolderFormat:
    """A format that is several files: their texts by their paths in a folder. ``summary``: its help."""

    name: str
    summary: str
    files: Callable[[ExportSource], dict[str, str]]


ExportFormat: TypeAlias = TextFormat | FolderFormat


def read_source(path: Path, *, allow_unsigned: bool = False) -> ExportSource:
    """A bundle, or a journal of ``deuteron tune`` or the folder that has it.

    Raises:
        CommandError: a folder without a journal.
        BundleError, SchemaError: the file is damaged, signed by nobody who is trusted, or none of these.
    """
    from deuteron.tuner.events import JobStarted, ShapeFinished, TrialFinished  # lazy: help starts without the tuner
    from deuteron.tuner.journal import FILE_NAME, is_journal, read_events  # lazy: as above

    if path.is_dir():
        path /= FILE_NAME
        if not path.is_file():
            raise CommandError(f"{path.parent} has no {FILE_NAME}", hint="a folder that `deuteron tune` wrote")
    try:
        journal = is_journal(path)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", hint="a bundle, or a journal") from None
    if not journal:
        bundle, _ = read_signed(path, allow_unsigned=allow_unsigned)
        return ExportSource(bundle.records())
    events = list(read_events(path))
    # A search that goes on tells again of the shapes that it had finished.
    records = {event.record.id: event.record for event in events if isinstance(event, ShapeFinished)}
    return ExportSource(
        list(records.values()),
        [event for event in events if isinstance(event, TrialFinished)],
        next((event.kernel_name for event in events if isinstance(event, JobStarted)), ""),
    )
