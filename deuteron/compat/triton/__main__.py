"""``python -m deuteron.compat.triton SCRIPT [ARGS]``: a program that imports triton, with deuteron in its place, and so
for the Python processes that it starts.

``-m MODULE [ARGS]`` runs a module instead, such as ``triton.tools.compile``.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path

from deuteron.compat.alias import install_for_all
from deuteron.compiler.as_main import run_as_main


def main(arguments: list[str]) -> int:
    """Run ``SCRIPT [ARGS]``, or ``-m MODULE [ARGS]``, as __main__ with deuteron under Triton's name."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print("usage: python -m deuteron.compat.triton (SCRIPT | -m MODULE) [ARGS]")
        return 0 if arguments and arguments != ["-m"] else 2
    if arguments[0] == "-m":
        return _run_module(arguments[1], arguments[2:])
    script, *rest = arguments
    if not Path(script).is_file():
        print(f"error: there is no file {script}", file=sys.stderr)
        return 2
    install_for_all()
    run_as_main(script, rest)
    return 0


def _run_module(name: str, arguments: list[str]) -> int:
    install_for_all()
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        found = None
    if found is None:
        print(f"error: there is no module {name}", file=sys.stderr)
        return 2
    sys.argv = [name, *arguments]
    sys.path.insert(0, "")
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
