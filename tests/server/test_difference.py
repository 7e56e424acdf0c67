"""Bundles by what changed: the same file as a whole download gives, at a fraction of its bytes, or the whole."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from answering import AnsweringServer, send
from hypothesis import given
from hypothesis import strategies as st

from deuteron.server import Client, ServiceStore
from deuteron.server.client import DownloadError, difference
from deuteron.server.configs import put_record
from deuteron.tuner import ConfigRecord
from deuteron.tuner.records import pieces as rules
from deuteron.tuner.records.pieces import PieceList, pieces, plan

LINES = st.lists(st.binary(min_size=0, max_size=30).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=60)


def listed(content: bytes) -> PieceList:
    return PieceList.of(hashlib.sha256(content).hexdigest(), content.splitlines(keepends=True))


def made_of(new: bytes, old: bytes) -> tuple[bytes, int]:
    """The new file by the plan, and how many bytes of it came from nowhere else."""
    made, fetched = b"", 0
    for run in plan(listed(new), list(pieces(old.splitlines(keepends=True)))):
        assert run.start == len(made)
        if run.source is None:
            made += new[run.start : run.start + run.size]
            fetched += run.size
        else:
            made += old[run.source : run.source + run.size]
    return made, fetched


@given(old=LINES, new=LINES)
def test_a_plan_makes_the_new_file_of_any_old_one(old: list[bytes], new: list[bytes]) -> None:
    content = b"".join(new)
    assert made_of(content, b"".join(old))[0] == content
    assert sum(listed(content).sizes) == len(content)


@given(st.data())
def test_what_stayed_is_not_fetched(data: st.DataObject) -> None:
    """Of a thousand lines a few are changed, added or taken away, anywhere."""
    draw = random.Random(data.draw(st.integers(0, 10**6)))
    old = [b'{"head": 1}\n', *(f'{{"record": {draw.random()}}}\n'.encode() for _ in range(1000))]
    new = [b'{"head": 2}\n', *old[1:]]
    changes = data.draw(st.integers(1, 4))
    for _ in range(changes):
        at = draw.randrange(1, len(new))
        new[at : at + draw.randrange(2)] = [f'{{"new": {draw.random()}}}\n'.encode()] * draw.randrange(2)
    made, fetched = made_of(b"".join(new), b"".join(old))
    assert made == b"".join(new)
    # A piece each, and of those that a change makes end elsewhere a second one; a long one is 7 times the average.
    assert fetched <= len(new[0]) + 2 * changes * 7 * rules.MEAN * 30


def test_a_piece_ends_before_it_grows_large() -> None:
    assert max(piece.size for piece in pieces([b"x" * 1000 + b"\n"] * 5000)) <= rules.MOST_BYTES + 1001


# -- against the service


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MEAN", 8)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each range that was asked for."""
    sizes: list[int] = []
    ask = difference._fetch

    def count(http: Any, address: str, run: rules.Stretch, target: Any) -> None:
        sizes.append(run.size)
        ask(http, address, run, target)

    monkeypatch.setattr(difference, "_fetch", count)
    return sizes


@pytest.mark.usefixtures("small_pieces")
def test_any_changes_give_the_file_of_a_whole_download(
    live_service: Callable[..., str], make_record: Callable[..., ConfigRecord], fetched: list[int], tmp_path: Path
) -> None:
    url = live_service(tmp_path / "home")
    store = ServiceStore.open(f"sqlite:///{tmp_path / 'home' / 'deuteron.db'}")
    draw = random.Random(3)

    def put(sizes: list[int]) -> None:
        with store.write() as tx:
            for size in sizes:
                put_record(tx, make_record({"M": size}), None)

    put(list(range(1, 151)))
    with Client(url) as client:
        client.pull_bundle(tmp_path / "kept")
        assert not fetched
        for number in range(8):
            if draw.random() < 0.4:
                with store.write() as tx:
                    known = list(tx.configs.stream(kernel_hash=None, device_key=None))
                    tx.configs.withdraw(json.loads(draw.choice(known))["id"], who="test", reason="wrong")
            else:
                put([draw.randrange(1, 400) for _ in range(draw.randrange(1, 4))])
            fetched.clear()
            client.pull_bundle(tmp_path / "kept")
            client.pull_bundle(tmp_path / f"whole{number}")
            content = (tmp_path / "kept").read_bytes()
            assert content == (tmp_path / f"whole{number}").read_bytes()
            assert fetched and sum(fetched) < len(content) / 2
    store.close()


# -- against services that lie or break

OLD = b'{"head": 1}\n' + b"".join(f'{{"record": {number}}}\n'.encode() for number in range(3000))
NEW = OLD.replace(b'"head": 1', b'"head": 2').replace(b'{"record": 1500}', b'{"record": "new"}')
SHA256 = hashlib.sha256(NEW).hexdigest()


class Liar(AnsweringServer):
    """Has ``NEW``; ``pieces`` is what it lists, ``ranges`` how it answers where a range is asked for. ``packed``: it
    says that both are packed twice. ``whole`` counts the bytes that are sent otherwise."""

    def __init__(self) -> None:
        self.pieces: bytes | None = json.dumps(listed(NEW).to_json()).encode()
        self.ranges: Callable[[bytes], bytes] = lambda part: part
        self.packed = False
        self.whole = 0
        super().__init__(self.answer)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        said = {"etag": f'"{SHA256}"', **({"content_encoding": "gzip, gzip"} if self.packed else {})}
        if handler.path.endswith("/pieces"):
            send(handler, 404 if self.pieces is None else 200, self.pieces or b"{}", **said)
        elif handler.path == f"/v1/bundles/{SHA256}":
            first, last = handler.headers["Range"][6:].split("-")
            part = NEW[int(first) : int(last) + 1]
            sent = self.ranges(part)
            send(handler, 206, sent, content_length=str(len(part)), **said)
            if len(sent) != len(part):
                handler.connection.shutdown(2)
        else:
            start = int(handler.headers.get("Range", "bytes=0-")[6:].rstrip("-"))
            self.whole += len(NEW) - start
            status = 416 if start >= len(NEW) else 206 if start else 200
            send(handler, status, NEW[start:], etag=f'"{SHA256}"')


@pytest.fixture
def liar() -> Iterator[Liar]:
    with Liar() as made:
        yield made


@pytest.fixture
def pulled(liar: Liar, tmp_path: Path) -> Callable[[], bytes]:
    """Brings the old bundle up to date; what then is there, and nothing else."""
    (tmp_path / "b").write_bytes(OLD)

    def pull() -> bytes:
        with Client(liar.url) as client:
            client.pull_bundle(tmp_path / "b")
        assert [path.name for path in tmp_path.iterdir()] == ["b"]
        return (tmp_path / "b").read_bytes()

    return pull


def test_an_honest_service_sends_what_changed(liar: Liar, pulled: Callable[[], bytes], fetched: list[int]) -> None:
    assert pulled() == NEW
    assert liar.whole == 0 and 0 < sum(fetched) < len(NEW) / 3


def _changed(**fields: object) -> bytes:
    return json.dumps({**listed(NEW).to_json(), **fields}).encode()


@pytest.mark.parametrize(
    "spoiled",
    [
        None,
        b"",
        b"[" * 100_000,
        b"{}",
        _changed(sha256="../../evil"),
        _changed(sizes=[-1] * len(listed(NEW).sizes)),
        _changed(sizes=listed(NEW).sizes[:-1]),
        _changed(sizes=listed(OLD).sizes, digests=listed(OLD).digests),
        _changed(digests=["0" * 32] * len(listed(NEW).sizes)),
        _changed(sha256="f" * 64),
        b" " * (1 << 25),
    ],
    ids=lambda spoiled: repr(spoiled)[:30],
)
def test_a_list_that_lies_costs_a_whole_download(
    spoiled: bytes | None, liar: Liar, pulled: Callable[[], bytes]
) -> None:
    liar.pieces = spoiled
    assert pulled() == NEW
    assert liar.whole > 0


@pytest.mark.parametrize(
    "ranges", [lambda part: part[: len(part) // 2], lambda part: b"", lambda part: bytes(len(part))]
)
def test_ranges_that_break_or_lie_cost_the_rest(
    ranges: Callable[[bytes], bytes], liar: Liar, pulled: Callable[[], bytes]
) -> None:
    liar.ranges = ranges
    assert pulled() == NEW
    assert liar.whole > 0


def test_packed_pieces_are_not_unpacked(liar: Liar, pulled: Callable[[], bytes]) -> None:
    liar.packed = True
    liar.pieces = gzip.compress(gzip.compress(bytes(1 << 24)))
    assert pulled() == NEW
    assert liar.whole == len(NEW)


def test_a_bundle_beyond_the_limit_is_not_put_together(liar: Liar, tmp_path: Path, fetched: list[int]) -> None:
    (tmp_path / "b").write_bytes(OLD)
    with Client(liar.url) as client, pytest.raises(DownloadError):
        client.pull_bundle(tmp_path / "b", most_bytes=len(NEW) - 1)
    assert not fetched and (tmp_path / "b").read_bytes() == OLD
