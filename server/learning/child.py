"""The process that trains: ``python -m deuteron.server.learning.child``, one kernel for each request.

It gives way to everything else that runs, ends soon after the server and when its time is over, and puts predictors
into their file whole: readers see the old or the new one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate.child import end_with_parent
from deuteron.tuner.learn import LEAST_SHAPES, SearchGroup, groups_of_logs, learn, load_lightgbm
from deuteron.tuner.records import Predictor, read_bundle, write_bundle

from ..store import ServiceStore
from .messages import Learnt, Train, Trained
from .reading import KnownKernel, known_kernel

_NICE = 19
#: No device, dtype and toolchain is begun after this part of the time: what is trained by then is to be kept.
_LAST_BEGIN = 0.5


def main() -> None:
    """Answer until stdin closes. What libraries print goes to stderr: stdout belongs to the protocol."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    end_with_parent()
    os.nice(_NICE)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        number = request.pop("request")
        answer: JsonObject = {**_answer(Train.from_json(request)).to_json(), "request": number}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _answer(request: Train) -> Trained:
    # Nobody may be left who could end this process.
    signal.alarm(int(request.seconds) + 2)
    try:
        load_lightgbm()
    except DeuteronError as error:
        return Trained(unavailable=f"{error.message} ({error.hint})")
    try:
        return train(request)
    except DeuteronError as error:
        return Trained(error=str(error))


def train(request: Train) -> Trained:
    """Train and publish.

    Raises:
        DeuteronError: the newest job or the predictors' file cannot be read, or the latter not be written.
    """
    begun = time.monotonic()
    known = _read(request)
    if known is None:
        return Trained()
    found: list[Predictor] = []
    left_out: list[str] = []
    for group in _groups(known, request.kernel_hash, left_out):
        if time.monotonic() - begun > _LAST_BEGIN * request.seconds:
            left_out.append(f"{group}: no time was left; DEUTERON_LEARN_SECONDS gives more")
            continue
        try:
            found.append(learn(group, known.workload))
        except DeuteronError as error:
            left_out.append(f"{group}: {error.message}")
    if found:
        publish(Path(request.bundle), found)
    return Trained(known.workload.kernel.name, tuple(_learnt(predictor) for predictor in found), tuple(left_out))


def publish(path: Path, found: Sequence[Predictor]) -> None:
    """Put predictors into a bundle that may have others: each takes the place of the one under its key.

    Raises:
        BundleError: what is there is damaged or of a newer version, which is then left as it is.
    """
    held = read_bundle(path) if path.exists() else None
    records = [] if held is None else list(held.records())
    others = [] if held is None else list(held.predictors())
    write_bundle(path, records, predictors=[*others, *found])


def _read(request: Train) -> KnownKernel | None:
    store = ServiceStore.open(request.database_url)
    try:
        with store.read() as tx:
            return known_kernel(tx, request.kernel_hash)
    finally:
        store.close()


def _groups(known: KnownKernel, kernel_hash: str, left_out: list[str]) -> list[SearchGroup]:
    """Those with enough shapes, largest first. What a device's worker called it may be no device."""
    found: list[SearchGroup] = []
    for device in sorted({log.device for log in known.logs}):
        try:
            found += groups_of_logs([log for log in known.logs if log.device == device], kernel_hash)
        except DeuteronError as error:
            left_out.append(f"{device}: {error.message}")
    large = [group for group in found if group.shapes >= LEAST_SHAPES]
    return sorted(large, key=lambda group: (-group.shapes, group.device.key, group.dtype))


def _learnt(predictor: Predictor) -> Learnt:
    accuracy = predictor.accuracy
    return Learnt(
        predictor.dtype,
        predictor.device.key,
        len(predictor.shapes),
        predictor.trials,
        accuracy.expected_loss,
        1 / accuracy.nearest.geomean - 1,
        accuracy.pays,
    )


if __name__ == "__main__":
    main()
