"""docs/cli.md, written from the commands themselves.

python -m deuteron.cli.reference docs/cli.md            write the page
python -m deuteron.cli.reference docs/cli.md --check    exit with 1 if the page is not what would be written
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from deuteron.compiler.whole_file import write_whole

if TYPE_CHECKING:
    from typer.core import TyperCommand

_HEAD = """\
# The command line

Exit codes of `deuteron`: 0, the command did what it says; 1, a job that it watched or some of the shapes that it tuned
did not succeed, `sanitize` has findings or `doctor` a problem; 2, a mistake that the message explains, in the
options or in a kernel of which nothing works at any shape; 130, Ctrl-C; 141, who read the output has gone (`| head`).
`bench` passes on the code of the benchmark. Data go to stdout, progress and messages to stderr. `python -m deuteron` is
the same command.

What commands read are files. Pipes and devices, of which nobody knows whether they end, are refused, and so is
`<(...)`: save its output to a file first.

Settings come from `DEUTERON_*` variables: those of the service are in [HTTP API](http-api.md#settings), all others in
[Settings](settings.md). `proton` and `proton-viewer` are described in [Profiling](profiling.md).

This page is written by `python -m deuteron.cli.reference docs/cli.md`; a test compares.
"""


def reference() -> str:
    """The whole page."""
    import typer

    from .app import app  # lazy: every command's module

    root: Any = typer.main.get_command(app)
    pages = [_HEAD, *(_page(path, command) for path, command in walk(root, ("deuteron",)))]
    return "\n".join(pages)


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Every command below ``command`` that does something, with the words that call it."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from walk(child, (*path, name))


def _page(path: Sequence[str], command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    words = [*path, *(["[OPTIONS]"] if options else []), *(_metavar(a) for a in arguments)]
    parts = [f"## {' '.join(path)}", "", f"    {' '.join(words)}", "", _help(command), ""]
    rows = [(f"`{_metavar(a)}`", a) for a in arguments]
    rows += [(f"`{_spelling(option)}`", option) for option in options]
    types = get_type_hints(inspect.unwrap(command.callback))
    if rows:
        parts += ["| | |", "|---|---|"]
        parts += [f"| {spelling} | {_description(p, types[p.name])} |" for spelling, p in rows]
        parts.append("")
    return "\n".join(parts)


def _help(command: Any) -> str:
    return inspect.cleandoc(command.help or "")


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _spelling(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.is_flag:
        return names
    return f"{names} {option.metavar}" if option.metavar else f"{names} {option.name.upper()}"


def _description(parameter: Any, kind: object) -> str:
    text = (parameter.help or "").replace("|", "\\|")
    default = parameter.default
    shown = default is not None and not isinstance(default, bool) and default not in ((), [])
    if shown and "Default" not in text:
        text += f" Default: `{getattr(default, 'value', default)}`."
    choices = [f"`{member.value}`" for member in _members(kind)]
    return f"{text} One of {', '.join(choices)}." if choices else text


def _members(kind: object) -> list[Enum]:
    """The values of an enumeration, alone or inside ``list[...]`` or ``... | None``."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)
    return [member for part in get_args(kind) for member in _members(part)]


def main(arguments: Sequence[str]) -> int:
    """Write the page, or compare it; the exit code."""
    options = argparse.ArgumentParser(prog="python -m deuteron.cli.reference", description="Write docs/cli.md.")
    options.add_argument("page", type=Path)
    options.add_argument("--check", action="store_true", help="exit with 1 if the page is not what would be written")
    given = options.parse_args(arguments)
    page, text = given.page, reference()
    if given.check:
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            return 0
        print(f"{page} is out of date: python -m deuteron.cli.reference {page}", file=sys.stderr)
        return 1
    write_whole(page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
