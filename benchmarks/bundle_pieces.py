"""What it costs to bring a bundle up to date: bytes of the whole, of its gzip form, and of the pieces that changed.

python benchmarks/bundle_pieces.py [--records 100000] [--changes 1 10 100] [--out FILE.json]

Records of two dtypes on five GPUs and ten kernels; some get another time, others are new, at random places. Nothing is
measured but sizes.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import hashlib
import json
import random
from pathlib import Path

from service import DTYPES, KERNELS, devices, make_record

from deuteron.tuner import encode_record
from deuteron.tuner.records.pieces import PieceList, pieces, plan


@dataclasses.dataclass(frozen=True)
class Update:
    """Bytes: the list of pieces, in gzip's format too, and the ranges that are fetched after it, with their number."""

    changes: int
    whole: int
    whole_gzip: int
    listed: int
    listed_gzip: int
    ranges: int
    requests: int


def update(lines: list[bytes], changes: int, draw: random.Random) -> Update:
    """Change ``changes`` records, a half of them by replacing, the rest by adding."""
    new = [b'{"head": "new"}\n', *lines[1:]]
    for number in range(changes):
        at = draw.randrange(1, len(new))
        other = new[at].replace(b'"trials":', f'"note":{number},"trials":'.encode())
        new[at : at + (number % 2 == 0)] = [other]
    content = b"".join(new)
    listed = PieceList.of(hashlib.sha256(content).hexdigest(), new)
    runs = [run for run in plan(listed, list(pieces(lines))) if run.source is None]
    text = json.dumps(listed.to_json(), separators=(",", ":")).encode()
    sizes = len(content), len(gzip.compress(content, 5)), len(text), len(gzip.compress(text, 5))
    return Update(changes, *sizes, sum(run.size for run in runs), len(runs))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--changes", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    groups = [(kernel, device, dtype) for kernel in range(KERNELS) for device in devices() for dtype in DTYPES]
    each = range(-(-options.records // len(groups)))
    made = (make_record(*group, number) for group in groups for number in each)
    records = sorted(made, key=lambda record: record.key)[: options.records]
    lines = [b'{"head": "old"}\n', *map(encode_record, records)]
    updates = [update(lines, changes, random.Random(changes)) for changes in options.changes]
    for each_update in updates:
        fetched = f"{each_update.listed + each_update.ranges:,} bytes in {each_update.requests} ranges"
        whole = f"the whole {each_update.whole:,}, as gzip {each_update.whole_gzip:,}"
        print(f"{each_update.changes:5} of {options.records} changed: {fetched}, {whole}")
    if options.out:
        found = {"records": options.records, "updates": [dataclasses.asdict(each_update) for each_update in updates]}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
