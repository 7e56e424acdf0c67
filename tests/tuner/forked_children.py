"""What tests of forked children see of them and their template: who they are, what they have open, how they end."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.nursery import Forked, Nursery


def ask(child: ChildProcess, deed: str = "ok") -> dict[str, object]:
    return child.request("screen", {"config": {"deed": deed}}, 60.0)


def pid_of(child: ChildProcess) -> int:
    assert child.pid is not None
    return child.pid


def is_forked(child: ChildProcess) -> bool:
    return isinstance(child._process, Forked)


def template_of(nursery: Nursery) -> int:
    assert nursery._template is not None
    return nursery._template._process.pid


def tasks() -> int:
    """Threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def state(pid: int) -> str | None:
    """As the kernel calls it (Z: nobody reaps it); None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def descriptors(pid: int | str) -> Counter[str]:
    """What a process has open, by kind."""
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            what = os.readlink(entry)
            found["file" if what.startswith("/") else what.partition(":")[0]] += 1
        except FileNotFoundError:
            continue  # the one that lists
    return found


def script_nursery(tmp_path: Path, before: str, after: str = "") -> Nursery:
    """``before`` runs in the template, ``after`` in each child before it answers as a stand-in."""
    stand_in = Path(__file__).with_name("stand_in.py")
    script = tmp_path / "template.py"
    script.write_text(
        f"import runpy, os, sys, threading, time\nfrom pathlib import Path\n"
        f"from deuteron.tuner.evaluate.template import load, serve\n{before}\nserve()\n{after}\n"
        f"runpy.run_path({str(stand_in)!r}, run_name='__main__')\n"
    )
    return Nursery((sys.executable, str(script)))
