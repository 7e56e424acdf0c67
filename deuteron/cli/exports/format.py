"""What is exported, and what a format is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

from ..errors import CommandError
from ..signatures import read_signed

if TYPE_CHECKING:
    from deuteron.tuner import ConfigRecord
    from deuteron.tuner.events import TrialFinished


@dataclass(frozen=True)
class ExportSource:
    """``records``: best configurations, read once. ``trials``: everything that a search of ``kernel`` tried, in order;
    a bundle has none. ``triton``: the version of Triton that the consumer has, ``blocks``: names of block sizes in the
    order of its tiles; both are empty where nobody said."""

    records: Iterable[ConfigRecord]
    trials: Sequence[TrialFinished] = ()
    kernel: str = ""
    triton: str = ""
    blocks: tuple[str, ...] = ()


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
    return ExportSource(
        [event.record for event in events if isinstance(event, ShapeFinished)],
        [event for event in events if isinstance(event, TrialFinished)],
        next((event.kernel_name for event in events if isinstance(event, JobStarted)), ""),
    )
