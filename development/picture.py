"""The picture in README.md: what a command prints, as an SVG of a terminal.

    python development/picture.py [--columns 175] docs/images/demo.svg make demo

The command runs in the current folder; its standard error is part of the picture. What it measures should be
measured on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text


def picture(title: str, printed: str, columns: int) -> str:
    """An SVG of a terminal with a command and its output; controls of colour in the output are kept."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {title}", style="bold"))
    console.print(Text.from_ansi(printed), soft_wrap=False)
    return console.export_svg(title=title)


def main() -> int:
    """Run the command and write the picture; the exit code is the command's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--columns", type=int, default=175)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    environment = {**os.environ, "COLUMNS": str(given.columns)}
    done = subprocess.run(given.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode == 0:
        given.picture.write_text(picture(" ".join(given.command), done.stdout, given.columns), encoding="utf-8")
    else:
        print(done.stdout, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
