"""``python -m deuteron.compat.triton SCRIPT [ARGS]``: a program that imports triton, with deuteron in its place."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from deuteron.compat.alias import install


def main(arguments: list[str]) -> int:
    """Run ``SCRIPT [ARGS]`` as __main__ with deuteron under Triton's name."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m deuteron.compat.triton SCRIPT [ARGS]")
        return 0 if arguments else 2
    script = Path(arguments[0])
    if not script.is_file():
        print(f"error: there is no file {script}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
