"""Profiling sessions: what a session records, and the registry of those that run."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deuteron.compiler.extras import require_packages

from .chrome import to_chrome
from .errors import MalformedProfile, ProfileFileError, UnknownSession, UsageError
from .mode import Mode
from .output.files import write_atomic
from .profiles import Profile
from .timeline import Timeline
from .tree import Node

#: Stands for the first of the sessions that there are.
RUNNING = -1
SUFFIXES = ("hatchet", "hatchet_msgpack", "chrome_trace")


class ProfileTarget:
    """A place in one session's data: a path, and whether launches count there or in a child of their own name.

    The node is made when it is first asked for, so that asking where a thread is leaves no empty frames.
    """

    __slots__ = ("_node", "is_launch", "path", "phase")

    def __init__(self, phase: Phase, path: tuple[str, ...], is_launch: bool = False) -> None:
        self.phase = phase
        self.path = path
        self.is_launch = is_launch
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The node at the path."""
        node = self._node
        if node is None:
            node = self._node = self.phase.profile.node(self.path)
        return node

    def add(self, metrics: Mapping[str, object]) -> None:
        """Add metrics there. Raises MetricError, and then makes no node."""
        if self._node is None:
            self._node = self.phase.profile.add(self.path, metrics)
        else:
            self.phase.profile.add_to(self._node, metrics)


@dataclass(eq=False, slots=True)
class Phase:
    """The data of one phase of a session, by its number. ``in_kernels``: of what kernels record, and not of times of
    launches."""

    session: int = RUNNING
    profile: Profile = field(default_factory=Profile)
    timeline: Timeline | None = None
    complete: bool = False
    in_kernels: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been recorded."""
        root = self.profile.root
        return not (root.children or root.metrics or (self.timeline is not None and not self.timeline.is_empty))


def suffix_for(data: str, output_format: str) -> str:
    """The file suffix for ``output_format`` ("" is the default of the kind of data).

    Raises UsageError, and MissingExtra where the packages that write the format are not installed.
    """
    suffix = output_format or ("chrome_trace" if data == "trace" else "hatchet")
    if suffix not in SUFFIXES:
        raise UsageError(f"unknown output format {suffix!r}", hint=f"one of {', '.join(SUFFIXES)}")
    if (suffix == "chrome_trace") != (data == "trace"):
        raise UsageError(
            f"a session with data={data!r} cannot be written as {suffix}",
            hint="start the session with data='trace' for chrome_trace, data='tree' for the others",
        )
    if suffix == "hatchet_msgpack":
        require_packages("msgpack", by="the format hatchet_msgpack")
    return suffix


class Session:
    """One profiling session: its settings, its phases of data, and whether it records now."""

    def __init__(
        self, number: int, pattern: str, *, context: str, data: str, mode: Mode, metadata_hook: object
    ) -> None:
        self.number = number
        self.pattern = pattern
        self.name = expand_name(pattern)
        #: Where files go, without suffix; None for the standard output. A later change of folder changes nothing.
        self.path: Path | None = None if self.name in ("", "-") else Path(self.name).absolute()
        # The name and the place of the process in which it began.
        self._first = None if self.path is None else (self.name, self.path)
        #: Whether it began in a process that has forked this one.
        self.inherited = False
        self.context = context
        self.data = data
        self.mode = mode
        self.metadata_hook = metadata_hook
        self.active = True
        self.phase = 0
        self.phases: dict[int, Phase] = {0: self.new_phase()}

    def new_phase(self) -> Phase:
        """Empty data of this session's kind."""
        in_kernels = self.mode.records is not None
        timeline = None
        if self.data == "trace":
            timeline = Timeline("ns" if in_kernels else "us", of_scopes=self.context != "python")
        return Phase(self.number, timeline=timeline, in_kernels=in_kernels)

    def target(self, path: tuple[str, ...]) -> ProfileTarget:
        """The place at ``path`` in the current phase."""
        return ProfileTarget(self.phases[self.phase], path)

    def advance(self) -> int:
        """Start the next phase; records in flight still go to the phase they were launched in."""
        self.phases[self.phase + 1] = self.new_phase()
        self.phase += 1
        return self.phase

    def data_of(self, phase: int) -> Phase:
        """A phase's data. Raises UnknownSession if there is none."""
        found = self.phases.get(phase)
        if found is None:
            raise UnknownSession(
                f"phase {phase} of session {self.number} has no data",
                hint=f"phases with data: {', '.join(map(str, sorted(self.phases))) or 'none'}",
            )
        return found

    def suffix(self, output_format: str) -> str:
        """As :func:`suffix_for`, for this session's kind of data."""
        return suffix_for(self.data, output_format)

    def encode(self, phase: Phase, suffix: str) -> bytes:
        """The file contents for one phase."""
        if suffix == "hatchet_msgpack":
            return phase.profile.to_msgpack()
        if suffix == "chrome_trace":
            if phase.timeline is None:
                raise MalformedProfile("a tree session has no trace", hint="start with data='trace'")
            return to_chrome(phase.timeline).encode()
        return phase.profile.to_hatchet().encode()

    def write(self, output_format: str = "") -> list[Path]:
        """Write every phase that has data; returns the files. Raises ProfileFileError."""
        suffix = self.suffix(output_format)
        return [path for number in sorted(self.phases) if (path := self.write_phase(number, suffix))]

    def write_phase(self, number: int, suffix: str) -> Path | None:
        """Write one phase, to the standard output if the session is called "" or "-"."""
        data = self.encode(self.phases[number], suffix)
        if self.path is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return None
        part = f".part_{number}" if self.phase > 0 else ""
        return write_atomic(f"{self.path}{part}.{suffix}", data)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been recorded."""
        return all(phase.is_empty for phase in self.phases.values())

    def begin_in_child(self) -> None:
        """Start without data in a forked process: under the name that the pattern gives there, or with the process id
        added where that is the same file of the folder, which stays. So do children of children."""
        if self._first is not None:
            name, (first, path) = expand_name(self.pattern), self._first
            new = path.with_name(Path(name).name)
            self.path = new if new != path else Path(f"{path}.{os.getpid()}")
            self.name = name if new != path else f"{first}.{os.getpid()}"
        self.inherited = True
        self.phase = 0
        self.phases = {0: self.new_phase()}


class Registry:
    """The sessions of this process. ``active`` is replaced, never changed, so that readers need no lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.sessions: dict[int, Session] = {}
        self.active: tuple[Session, ...] = ()
        self.command_line = False
        self._next = 0

    def by_name(self, name: str) -> Session | None:
        """The session called ``name``, or one whose files are the same under another name, if there is one."""
        file = os.path.realpath(name)
        return next((s for s in self.sessions.values() if s.name == name or _is_file(s.path, file)), None)

    def create(self, pattern: str, *, context: str, data: str, mode: Mode, metadata_hook: object) -> Session:
        """Register a new, active session."""
        session = Session(self._next, pattern, context=context, data=data, mode=mode, metadata_hook=metadata_hook)
        self._next += 1
        self.sessions[session.number] = session
        self.refresh()
        return session

    def get(self, number: int) -> Session:
        """The session with this id. Raises UnknownSession."""
        session = self.sessions.get(number)
        if session is None:
            raise UnknownSession(
                "no profiling session runs"
                if number == RUNNING
                else f"Session has not been initialized: {number}",  # in Proton's words
                hint=f"running sessions: {', '.join(map(str, self.sessions)) or 'none'}",
            )
        return session

    def select(self, number: int | None) -> list[Session]:
        """One session, or all for None; ``RUNNING`` is the first that there is.

        Raises UnknownSession. From the command line only session 0 exists for a script.
        """
        if number is None:
            return list(self.sessions.values())
        if number == RUNNING and self.sessions:
            return [next(iter(self.sessions.values()))]
        if self.command_line and number != 0:
            raise UsageError(
                "only session 0 can be used in a script that the proton command runs",
                hint="leave the session argument out",
            )
        return [self.get(number)]

    def remove(self, session: Session) -> None:
        """Forget a session. Its id is not used again."""
        self.sessions.pop(session.number, None)
        self.refresh()

    def refresh(self) -> None:
        """Recompute ``active`` after a session changed."""
        self.active = tuple(session for session in self.sessions.values() if session.active)


registry = Registry()


def _is_file(path: Path | None, file: str) -> bool:
    return path is not None and os.path.realpath(path) == file


def expand_name(pattern: str) -> str:
    """A session's name: ``%p`` and ``{pid}`` in the pattern are the process id, ``%%`` is a percent sign.

    Raises UsageError for another letter after a percent sign.
    """

    def meaning(found: re.Match[str]) -> str:
        known = {"%%": "%", "%p": str(os.getpid())}
        if found[0] not in known:
            raise UsageError(
                f"{found[0]!r} in the session name {pattern!r} stands for nothing",
                hint="%p is the process id, %% a percent sign",
            )
        return known[found[0]]

    return re.sub(r"%.?", meaning, pattern).replace("{pid}", str(os.getpid()))


def check_writable(name: str) -> None:
    """Refuse a session name that no file can have, before an hour of profiling is lost."""
    if name in ("", "-"):
        return
    folder = Path(name).parent
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise ProfileFileError(f"session {name!r} names a folder", hint="add the name of a file, without its suffix")
    if not folder.is_dir():
        raise ProfileFileError(
            f"session {name!r} would be written to {folder}, which is not a folder",
            hint="create the folder, or give another name",
        )
    if not os.access(folder, os.W_OK):
        raise ProfileFileError(
            f"session {name!r} would be written to {folder}, where you may not write", hint="give another name"
        )
    try:
        Path(f"{name}.hatchet").lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # too long, or with a zero in it
        raise ProfileFileError(f"no file can be called {name!r}: {error}", hint="give another name") from error
