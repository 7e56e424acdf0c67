"""Text on a terminal as it is: what is printed or stands in a table is no markup and gives the terminal no orders."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from deuteron.compiler.printable import printable


class LiteralConsole(Console):
    """rich's console without control characters; with ``markup=False`` a ``[red]`` in a name is a part of the name."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is no ``Text`` comes through here: cells, titles, lines."""
        return super().render_str(printable(text), **options)
