"""Text from elsewhere on terminals."""

from __future__ import annotations

import sys
import unicodedata

from deuteron.compiler.printable import printable, printable_line


def test_no_control_character_is_left():
    """Every character of Unicode whose category is control, surrogate, or an end of lines; and directions."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    left = {c for c in printable(everything) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")}
    assert left <= {"\t", "\n"}
    assert not any(unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF"} for c in printable(everything))
    printable(everything).encode()
    assert not {"\t", "\n", "\r"} & set(printable_line(everything))


def test_what_is_shown_in_their_place():
    assert printable("a\x1b[31mb\rc\x9b\u202e\ud800") == r"a\x1b[31mb\rc\x9b\u202e\ud800"
    assert printable("first\n\tsecond\r\nµs ± é 核 👍") == "first\n\tsecond\r\nµs ± é 核 👍"
    assert printable_line("first\n\tsecond\r\n") == r"first\n\tsecond\r\n"
