"""The picture of a search shows every trial where it belongs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from deuteron.tuner.events import JobStarted, TrialFinished
from deuteron.tuner.measure.measurement import Bound, Measurement, TimingProtocol
from deuteron.tuner.measure.statistics import Interval
from deuteron.tuner.search_picture import BOUNDS, search_svg
from deuteron.tuner.trial import Trial

SVG = "{http://www.w3.org/2000/svg}"


def finished(
    number: int, us: float | None, *, n: int = 8, bound: Bound | None = None, **fields: object
) -> TrialFinished:
    time = None if us is None else Interval(us * 1e3, us * 900, us * 1100, 9)
    made = None if time is None else Measurement(time, TimingProtocol("device", True, "rounds"), 1.0, 1.0, bound=bound)
    given = {"status": "ok" if us is not None else "timeout", "phase": "screen", **fields}
    trial = Trial(number, {"BLOCK": 2**number}, time_ns=time, measurement=made, **given)  # type: ignore[arg-type]
    return TrialFinished({"N": n}, "f32", trial, None)


def marks(svg: str) -> list[tuple[str, float, float, str]]:
    """Tooltip, place and colour of each mark."""
    found = []
    for path in ElementTree.fromstring(svg).iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is not None:
            x, y = re.findall(r"-?[\d.]+", path.attrib["transform"])
            found.append((title.text or "", float(x), float(y), path.attrib["fill"]))
    return found


def test_every_trial_is_shown_by_its_time_and_number() -> None:
    times = [40.0, 10.0, None, 20.0, 5000.0]
    svg = search_svg(finished(number, us) for number, us in enumerate(times))
    found = marks(svg)
    assert [int(re.findall(r"#(\d+)", title)[0]) for title, *_ in found] == list(range(5))
    assert [x for _, x, *_ in found] == sorted(x for _, x, *_ in found)
    slow, best, failed, twice, far = (y for _, _, y, _ in found)
    # Doublings are equally far apart; failures and what is slower than can be shown lie on the upper edge.
    assert best - twice == pytest.approx(twice - slow) and best > twice > slow > far == failed


def test_the_line_is_the_fastest_so_far() -> None:
    svg = search_svg(finished(number, us) for number, us in enumerate([30.0, 40.0, 20.0, None, 10.0]))
    (line,) = ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert heights == sorted(heights)
    assert len(set(heights)) == 3


@pytest.mark.parametrize("bound", [*Bound.__args__, None])  # type: ignore[attr-defined]
def test_colours_say_what_bounds(bound: Bound | None) -> None:
    ((_, _, _, colour),) = marks(search_svg([finished(0, 1.0, bound=bound)]))
    assert colour == BOUNDS[next((name for name in BOUNDS if bound and bound in name), "not known")]
    assert (colour == BOUNDS["not known"]) == (bound is None)


def test_reasons_have_marks_of_their_own() -> None:
    hope = "expected 5 % better (p=0.1)"
    given = ["the default", f"{hope}: A 1->2 beside the best", f"{hope}: unexplored region"]
    given += ["among the best known before", "predicted to be fast", f"{hope}: 4 changes from the best"]
    root = ElementTree.fromstring(search_svg(finished(n, 1.0, reason=reason) for n, reason in enumerate(given)))
    shapes = [p.attrib["d"] for p in root.iter(f"{SVG}path") if p.find(f"{SVG}title") is not None]
    assert [shapes.index(shape) for shape in shapes] == [0, 1, 2, 3, 3, 2]


def test_a_panel_for_each_shape_and_text_from_outside_is_escaped() -> None:
    svg = search_svg(
        [finished(0, None, error="<script>&"), finished(1, 2.0, n=16), finished(2, 1.0, n=16, phase="final")]
    )
    assert "<script" not in svg
    headings = [t.text for t in ElementTree.fromstring(svg).iter(f"{SVG}text") if t.attrib.get("font-weight") == "bold"]
    assert headings == ["N=8 f32", "N=16 f32"]


def test_nothing_measured_is_a_picture_too() -> None:
    assert marks(search_svg([JobStarted("k", "cpu", "surrogate", 1, 1, None)])) == []
