"""How sessions end: when they are finalized, when the process ends without, and in the children that it forks."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
from multiprocessing import util
from pathlib import Path
from types import FrameType

from deuteron.compiler.errors import DeuteronError

from . import open_scopes
from .device_fields import describe_devices
from .recorder import recorder
from .session import Session, registry


def finalize_sessions(sessions: list[Session], output_format: str) -> list[Path]:
    """Flush, write and remove these sessions; the first failure is raised after the others were written. Returns the
    files. Finished phases that could not be written are tried again, for these sessions alone."""
    failure: Exception | None = None
    files: list[Path] = []
    with registry.lock:
        for session in sessions:
            session.suffix(output_format)
        if sessions:
            recorder.flush()
        for session in sessions:
            session.active = False
            try:
                for phase in session.phases.values():
                    describe_devices(phase.profile)
                files += session.write(output_format or session.mode.format)
            except Exception as error:
                failure = failure or error
                recorder.sessions_changed()
                continue
            registry.remove(session)
            recorder.session_removed(session)
    if failure is not None:
        raise failure
    return files


class Ending:
    """What a process does with sessions that nobody has finalized: it writes them, and says so.

    Files are written when Python ends, and on SIGTERM if the program does nothing about it itself. A forked child
    begins with the sessions of its parent, without their data and with file names of its own.
    """

    def __init__(self) -> None:
        self._watching = False
        # Kept here: the interpreter calls it when the main thread runs next.
        self._handle_on_main = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._handle)

    def watch(self) -> None:
        """Begin to look; called when a session starts."""
        if not self._watching:
            self._watching = True
            atexit.register(self.write_all)
            os.register_at_fork(after_in_child=self._forked)
            # Children of multiprocessing leave without atexit.
            util.register_after_fork(self, Ending._write_with_multiprocessing)
        if threading.current_thread() is threading.main_thread():
            self._handle(None)
        else:
            ctypes.pythonapi.Py_AddPendingCall(self._handle_on_main, None)

    def _handle(self, _: object) -> int:
        """Be told of SIGTERM; only the main thread can ask for that."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
        return 0

    def write_all(self) -> None:
        """Write the sessions that are left, but for those of a forked child that have recorded nothing."""
        for session in list(registry.sessions.values()):
            if session.inherited and session.is_empty:
                registry.remove(session)
                continue
            try:
                files = finalize_sessions([session], "")
            except Exception as error:
                why = str(error) if isinstance(error, DeuteronError) else f"{type(error).__name__}: {error}"
                print(f"proton: session {session.name!r} was not finalized: {why}", file=sys.stderr)
            else:
                if files and not session.inherited:
                    written = ", ".join(map(str, files))
                    print(f"proton: session {session.name!r} was not finalized; wrote {written}", file=sys.stderr)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Write, and end as the signal would have ended the process."""
        signal.signal(number, signal.SIG_DFL)
        try:
            self.write_all()
        finally:
            os.kill(os.getpid(), number)

    def _write_with_multiprocessing(self) -> None:
        util.Finalize(None, self.write_all, exitpriority=0)

    def _forked(self) -> None:
        """In a child: no data of the parent, no GPU source (the driver does not survive a fork), no held lock. What its
        thread is in goes on there."""
        registry.lock = threading.RLock()
        with contextlib.suppress(AttributeError):
            recorder.gpu = None
        for session in registry.sessions.values():
            session.begin_in_child()
        open_scopes.here().cell = None
        if registry.sessions:
            recorder.sessions_changed()
            recorder.begin_in_child()


ending = Ending()
