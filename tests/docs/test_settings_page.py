"""docs/settings.md lists every knob as knobs.describe() states it. Rewrite it with ``python
tests/docs/test_settings_page.py``."""

from __future__ import annotations

from pathlib import Path

from deuteron.compiler import knobs

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
HEAD = """# Settings of the compiler, the profiler and the tuner

Environment variables, read when they are needed. Where Triton has a variable of the same meaning its name works too;
the DEUTERON name wins. A program overrides one for a while with its name in Python: `from deuteron.compiler import
knobs`, then `with knobs.cpu_threads.scope(2):`. The service's settings are on the page of its [HTTP API](http-api.md).

| variable | in Python | default | meaning | values |
|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    rows = []
    for knob in knobs.all_knobs():
        names = "<br>".join(f"`{name}`" for name in knob.names)
        cells = (names, f"`{knob.attribute}`", knob.default_text, knob.doc, knob.allowed)
        rows.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return HEAD + "\n".join(rows) + "\n"


def test_the_page_is_what_the_knobs_say():
    assert PAGE.read_text() == page(), "run python tests/docs/test_settings_page.py"


if __name__ == "__main__":
    PAGE.write_text(page())
