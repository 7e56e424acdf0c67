"""One run of ptxas, begun before there is anything to assemble: loading it takes longer than a small kernel takes to
compile, and another core does it meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import weakref
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType

from .. import knobs
from ..errors import AssemblerError, OutOfResources, TargetError
from ..target import Target
from .assembler import assembler_options, find_ptxas, has_ptxas, ptxas_identity

#: For glibc in ptxas: its heap grows by 64 MiB at a time and asks for huge pages. It takes 10 to 30 MB for a kernel,
#: and faults for pages of 4 KiB were a tenth of its time. Where there are no huge pages this does nothing.
_HEAP = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864"}


class Ptxas:
    """A ptxas that waits for its input. Leaving its ``with`` block ends it.

    It reads /dev/stdin, because unlike "-" a path is opened only once it has built its tables. With ``lines`` the
    cubin has a table of the source lines that the PTX names; its code is the same.

    Raises:
        TargetError: there is none.
    """

    def __init__(self, target: Target, *, lines: bool = False) -> None:
        self.target = target
        self._path = find_ptxas()
        # Without a name, so that a process that dies leaves nothing behind; closed when the block is left.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        number = self._output.fileno()
        options = [*assembler_options(), *(["-lineinfo"] if lines else [])]
        command = [str(self._path), "-v", f"--gpu-name=sm_{target.arch}", *options, "/dev/stdin"]
        try:
            self._process = subprocess.Popen(
                [*command, "-o", f"/dev/fd/{number}"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[number],
                env=_HEAP | knobs.inherited_environment(),
            )
        except BaseException:
            self._output.close()
            raise
        _waiting.add(self._process)

    def assemble(self, ptx: str) -> tuple[bytes, str]:
        """The cubin of ``ptx`` and what ptxas said. To be called once.

        Raises:
            AssemblerError: the code was rejected, the message carries the log; or a signal ended ptxas.
            OutOfResources: it needs more shared memory than the target has.
        """
        said, _ = self._process.communicate(ptx.encode())
        log = said.decode(errors="replace")
        if self._process.returncode < 0:
            raise _ended_by_signal(-self._process.returncode, log, self._path, self.target)
        if self._process.returncode:
            raise _error(log, self.target)
        self._output.seek(0)
        return self._output.read(), log

    def __enter__(self) -> Ptxas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # does nothing to one that has ended
        self._process.communicate()
        self._output.close()


def begin_assembling(target: Target, *, lines: bool = False) -> AbstractContextManager[Ptxas | None]:
    """A ptxas that waits for its input (``lines``: as :class:`Ptxas` takes them); None where there is none, and
    nvJitLink may assemble."""
    try:
        return Ptxas(target, lines=lines) if has_ptxas() else nullcontext()
    except TargetError:
        return nullcontext()


_waiting: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()


def _let_go() -> None:
    """In a process that was forked meanwhile: while it holds the pipe, ptxas does not see the end of its input."""
    for process in _waiting:
        if process.stdin is not None:
            process.stdin.close()


os.register_at_fork(after_in_child=_let_go)


def _error(log: str, target: Target) -> AssemblerError | OutOfResources:
    shared = re.search(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)", log)
    if shared:
        return OutOfResources("shared memory", int(shared[1], 16), int(shared[2], 16))
    return AssemblerError(f"ptxas cannot assemble the kernel for {target}:\n{log.strip()}")


def _ended_by_signal(number: int, log: str, path: Path, target: Target) -> AssemblerError:
    """The code may be right and ptxas wrong: versions differ in what they die of."""
    known = {s.value: s.name for s in signal.Signals}
    said = f"{path} ({ptxas_identity(path)}) was ended by {known.get(number, f'signal {number}')}"
    hint = "set DEUTERON_PTXAS_PATH to a ptxas of another version; the newest comes with pip install nvidia-cuda-nvcc"
    if number == signal.SIGKILL:
        hint = "the system ends processes in this way for want of memory; fewer at a time need less"
    return AssemblerError(f"{said} while it assembled the kernel for {target}\n{log}".rstrip(), hint=hint)
