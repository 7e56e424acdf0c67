"""Results as files that say nothing of the machine: paths in messages begin where the checkout does."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write_report(path: Path, document: dict[str, object], checkout: Path) -> None:
    """Write a document as JSON. Paths below the checkout of the suite, ours, this Python and the folder of temporary
    files lose what is before them."""
    text = json.dumps(document, indent=1) + "\n"
    folders = [checkout, ROOT, Path(sys.prefix), Path(tempfile.gettempdir()), Path.home()]
    # Inner ones first: a checkout may lie among the temporary files.
    for folder in sorted({str(folder.resolve()) for folder in folders}, key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    path.write_text(text)
