"""What a person does with the HTML page, in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browsing import press, text
from viewed_profiles import H100

from deuteron.profiler import Profile
from deuteron.profiler.viewer.arguments import main as viewer_main

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
RESULTS = Path(__file__).parents[2] / "benchmarks/results"
RECORDED = RESULTS / "2026-11-21-h200/demo-matmul.hatchet"


@pytest.fixture
def open_page(open_file: Callable[[Path], Any], tmp_path: Path) -> Callable[..., Any]:
    """Opens the page of profiles."""

    def show(*profiles: Profile | Path, arguments: tuple[str, ...] = ()) -> Any:
        paths = []
        for number, profile in enumerate(profiles):
            path = profile if isinstance(profile, Path) else profile.write(tmp_path / f"{number}.hatchet")
            paths.append(str(path))
        compared = ["-diff", paths[1]] if len(paths) > 1 else []
        out = tmp_path / "page.html"
        assert viewer_main(["-f", "html", "-o", str(out), *arguments, *compared, paths[0]]) == 0
        browser = open_file(out)
        assert browser.execute_script("return document.documentElement.dataset.ready") is not None
        return browser

    return show


@pytest.fixture
def profile() -> Profile:
    """ROOT > train > {forward > {gemm 60, relu 10}, backward > gemm 30}, in microseconds."""
    profile = Profile()
    profile.device("CUDA", 0, **H100)
    for path, time, flops in (
        (("train", "forward", "gemm"), 60_000, 2e10),
        (("train", "forward", "relu"), 10_000, 1e6),
        (("train", "backward", "gemm"), 30_000, 1e10),
    ):
        node = profile.node(path)
        profile.add_launches(node, count=len(path[1]), time_ns=time, device_type="CUDA", device_id=0)
        profile.add_to(node, {"flops16": flops, "bytes": 1_000_000})
    return profile


def test_searching_zooming_and_keys(open_page: Callable, profile: Profile) -> None:
    browser = open_page(profile)
    assert "ROOT · time (ns) 100 us, 100.0 %" in text(browser, "#details")
    browser.execute_script("document.activeElement.blur()")
    press_body(browser, "/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    press(browser, *"gemm")
    assert text(browser, "#found") == "2 found, 90.0 %"
    press(browser, "ENTER")
    assert browser.switch_to.active_element.get_attribute("id") == "canvas"
    # Down to train and to its largest child, right to nothing, left to backward.
    press(browser, "ARROW_DOWN", "ARROW_DOWN")
    assert text(browser, "#details").startswith("forward · time (ns) 70 us, 70.0 %")
    press(browser, "ARROW_LEFT")
    assert text(browser, "#details").startswith("backward · time (ns) 30 us")
    press(browser, "ENTER")
    crumbs = [button.text for button in browser.find_elements("css selector", "#crumbs button")]
    assert crumbs == ["ROOT", "train", "backward"]
    assert browser.find_element("css selector", "#crumbs [aria-current]").text == "backward"
    press(browser, "ESCAPE")
    assert text(browser, "#crumbs") == "ROOT"
    click_on_canvas(browser, 0.5, 3)
    assert browser.find_element("css selector", "#crumbs [aria-current]").text == "gemm"
    browser.find_element("css selector", "#crumbs button").click()
    assert text(browser, "#crumbs") == "ROOT"


def press_body(browser: Any, key: str) -> None:
    browser.find_element("css selector", "body").send_keys(key)


def click_on_canvas(browser: Any, across: float, level: int) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    canvas = browser.find_element("css selector", "#canvas")
    width, height = canvas.size["width"], canvas.size["height"]
    x, y = width * (across - 0.5), level * 22 + 11 - height / 2
    ActionChains(browser).move_to_element_with_offset(canvas, int(x), int(y)).click().perform()


def pixels(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('canvas').toDataURL()"))


def test_metrics_and_views(open_page: Callable, profile: Profile) -> None:
    browser = open_page(profile)
    icicle = pixels(browser)
    choose(browser, "flops16")
    assert pixels(browser) != icicle and "30 GFLOP" not in text(browser, "#details")
    assert "flops16 30 G" in text(browser, "#details")
    choose(browser, "time (ns)")
    assert pixels(browser) == icicle
    browser.find_element("css selector", "#tab-flame").click()
    assert pixels(browser) != icicle
    click_on_canvas(browser, 0.5, 0)  # in a flame the leaves are on top
    assert browser.find_element("css selector", "#crumbs [aria-current]").text == "gemm"
    light = pixels(browser)
    browser.find_element("css selector", "#theme").click()
    assert pixels(browser) != light
    background = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.execute_script(background)
    browser.find_element("css selector", "#theme").click()
    assert {dark, browser.execute_script(background)} == {"rgb(22, 23, 27)", "rgb(255, 255, 255)"}


def choose(browser: Any, label: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("css selector", "#metric")).select_by_visible_text(label)


def test_the_table_sorts_and_the_roofline_has_points(open_page: Callable, profile: Profile) -> None:
    browser = open_page(profile)
    browser.find_element("css selector", "#tab-icicle").click()
    press(browser, "ARROW_RIGHT", "ARROW_RIGHT")
    rows = [row.text for row in browser.find_elements("css selector", "#table tbody tr")]
    assert rows[0] == "90 us (90.0 %) 90 us (90.0 %) 2 gemm"
    browser.find_element("css selector", '#table [data-column="total"]').click()
    assert text(browser, "#table tbody td:last-child") == "ROOT"
    assert browser.find_element("css selector", '[aria-sort="descending"]').text.startswith("total")
    browser.find_element("css selector", '#table [data-column="total"]').click()
    assert text(browser, "#table tbody td:last-child") == "relu"
    browser.find_element("css selector", "#tab-roofline").click()
    labels = [dot.get_attribute("aria-label") for dot in browser.find_elements("css selector", "circle.point")]
    assert len(labels) == 2 and any(label.startswith("gemm: 333.3 TFLOP/s at 15000 ") for label in labels), labels
    assert "fp16 tensor 756.5 TFLOP/s" in text(browser, "#roofline svg")
    assert "H100" in text(browser, "#roofline p")


def test_a_difference_says_by_signs_what_colours_say(open_page: Callable, profile: Profile) -> None:
    other = Profile()
    for path, time in (
        (("train", "forward", "gemm"), 20_000),
        (("train", "backward", "gemm"), 50_000),
        (("new",), 7_000),
    ):
        other.add_launches(other.node(path), count=1, time_ns=time, device_type="CUDA", device_id=0)
    browser = open_page(profile, other, arguments=("-m", "time"))
    assert "ROOT · time (ns) +23 us · self 0 ns · 100 us after 77 us" in text(browser, "#details")
    assert "slower" in text(browser, "#legend") and "faster" in text(browser, "#legend")
    click_on_canvas(browser, 0.01, 1)
    assert "only in" in text(browser, "#details") and text(browser, "#details").startswith("new")
    browser.find_element("css selector", "#tab-table").click()
    cells = {row.text.split()[-1]: row for row in browser.find_elements("css selector", "#table tbody tr")}
    assert cells["gemm"].find_element("css selector", "td").get_attribute("class") == "more"
    assert cells["gemm"].text.startswith("+20 us") and cells["new"].text.startswith("-7 us")


def test_hostile_names_do_nothing(open_page: Callable) -> None:
    profile = Profile()
    profile.add_launches(profile.node((EVIL, "k")), count=1, time_ns=5, device_type="CUDA", device_id=0)
    browser = open_page(profile)
    for tab in ("flame", "table", "roofline", "icicle"):
        browser.find_element("css selector", f"#tab-{tab}").click()
    browser.find_element("css selector", "#canvas").click()
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 2
    assert EVIL in browser.execute_script("return document.getElementById('crumbs').textContent")


def test_everything_can_be_reached_and_has_a_name(open_page: Callable, profile: Profile) -> None:
    browser = open_page(profile)
    reached = []
    press_body(browser, "")
    for _ in range(8):
        press(browser, "TAB")
        element = browser.switch_to.active_element
        reached.append((element.get_attribute("id"), element.accessible_name))
    assert [identity for identity, _ in reached][:5] == ["metric", "search", "theme", "tab-icicle", ""]
    assert reached[5][0] == "canvas" and all(name for identity, name in reached[:6]), reached


# Milliseconds until something was painted; a busy browser tells of it some time later.
PAINTED = """
const done = arguments[0];
new PerformanceObserver((list) => {
  const painted = list.getEntriesByName("first-contentful-paint")[0];
  if (painted) done(painted.startTime);
}).observe({ type: "paint", buffered: true });
"""


def test_ten_thousand_frames_are_drawn_within_a_second(open_page: Callable) -> None:
    profile = Profile()
    for number in range(10_000):
        node = profile.node((f"module_{number % 10}", f"layer_{number % 100}", f"kernel_{number}"))
        profile.add_launches(node, count=1, time_ns=1000 + number, device_type="CUDA", device_id=0)
    browser = open_page(profile)
    assert browser.execute_script("return Number(document.documentElement.dataset.drawn)") > 100
    # Milliseconds from reading the data to the last frame drawn, and until something was painted at all. The bound is
    # one that a busy machine keeps, too; on an idle core both are done after 0.3 s.
    assert browser.execute_script("return Number(document.documentElement.dataset.ready)") < 5000
    assert browser.execute_async_script(PAINTED) < 5000


def test_every_tab_shows_a_search_on_a_gpu(open_page: Callable, screenshot: Callable[[str], None]) -> None:
    """The profile of a tuner's search on an H200, which the documentation shows, too."""
    browser = open_page(RECORDED)
    before = browser.get_window_size()
    browser.set_window_size(1000, 800)
    try:
        seen = {}
        for tab, section in (("icicle", "picture"), ("flame", "picture"), ("table", "table"), ("roofline", "roofline")):
            browser.find_element("id", f"tab-{tab}").click()
            assert browser.find_element("id", section).is_displayed()
            seen[tab] = text(browser, f"#{section}")
            browser.execute_script("arguments[0].scrollIntoView()", browser.find_element("id", f"tab-{tab}"))
            screenshot(f"viewer-{tab}")
        assert "ROOT · time (ns) 10.22 ms, 100.0 %" in seen["icicle"] and seen["flame"] == seen["icicle"]
        assert seen["table"].splitlines()[0].startswith("self time (ns)") and "BLOCK_M=128" in seen["table"]
        assert len(browser.find_elements("css selector", "circle.point")) > 5 and "TFLOP/s" in seen["roofline"]
    finally:
        browser.set_window_size(before["width"], before["height"])


def test_names_can_be_read_on_every_colour(open_page: Callable, profile: Profile) -> None:
    """WCAG 2.2 asks for a contrast of 4.5 for text."""
    browser = open_page(profile, profile, arguments=("-m", "time"))
    drawn = """
        const light = (text) => {
          const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
          const [r, g, b] = text.match(/\\d+/g).map((c) => linear(c / 255));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
        };
        const worst = [];
        for (const ramp of Object.values(RAMPS)) for (let i = -50; i <= 50; i++) {
          for (const color of [heat(ramp, i / 50), change(ramp, i / 50)]) {
            const [a, b] = [light(color), inkOn(color) === "#000" ? 0.05 : 1.05];
            worst.push(Math.max(a, b) / Math.min(a, b));
          }
        }
        return Math.min(...worst);
    """
    assert browser.execute_script(drawn) >= 4.5


def test_a_difference_of_recorded_profiles(open_page: Callable, screenshot: Callable[[str], None]) -> None:
    """The same layer before and after a change, which the documentation shows, too."""
    recorded = RESULTS / "2026-11-23-diff-profiles"
    browser = open_page(recorded / "after.hatchet", recorded / "before.hatchet", arguments=("-m", "time"))
    before = browser.get_window_size()
    browser.set_window_size(1000, 560)
    try:
        assert "ROOT · time (ns) -" in text(browser, "#details") and "slower" in text(browser, "#legend")
        browser.execute_script("arguments[0].scrollIntoView()", browser.find_element("id", "tab-icicle"))
        screenshot("viewer-diff")
    finally:
        browser.set_window_size(before["width"], before["height"])
