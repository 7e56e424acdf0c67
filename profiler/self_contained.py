"""Pages that need nothing else: styles and scripts are in them, allowed by their hashes; data can do nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re


def page(template: str, *, title: str, style: str, script: str, data: object) -> str:
    """``template`` with its ``@title@``, ``@policy@``, ``@style@``, ``@script@`` and ``@data@`` filled in.

    ``data`` becomes JSON. Nothing is loaded from anywhere, and text of the data is never run, whatever it says.
    """
    parts = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'",
        "style": style,
        "script": script,
        "data": _inert(data),
    }
    # Once over the template: what was put in is not looked at again.
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], template)


def _inert(document: object) -> str:
    """JSON that ends no script and begins no comment, whatever its strings say."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
