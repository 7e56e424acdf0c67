"""The HTML page: its data and its scripts, without a browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from generated_profiles import literals, walk
from hypothesis import given, settings
from test_formats import by_name, export, summed  # type: ignore[import-not-found]
from viewed_profiles import H100

import deuteron.profiler.viewer
from deuteron.profiler import Profile, specs

PAGE = Path(deuteron.profiler.viewer.__file__).parent / "page"
NODE = shutil.which("node")
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.scripts:
            self.scripts[-1] += data


def data_of(page: str) -> dict[str, Any]:
    return json.loads(Elements(page).scripts[0])


@settings(max_examples=40)
@given(literals())
def test_the_page_has_the_numbers_of_the_profile(literal: list) -> None:
    data = data_of(export("html", literal, "time", "count"))
    time = data["metrics"][0]
    nodes = sum(1 for _ in walk(literal[0]))
    assert len(data["parent"]) == len(data["name"]) == len(time["own"]) == nodes
    assert time["total"][0] == summed(literal[0], "time (ns)") == sum(value or 0 for value in time["own"])
    assert sorted({data["names"][at] for at in data["name"]}) == sorted(data["names"])


def test_a_page_is_one_file_and_names_run_nothing() -> None:
    child = {"frame": {"name": EVIL}, "metrics": {"time (ns)": 1, EVIL: 2}, "children": []}
    page = export("html", [{"frame": {"name": "ROOT"}, "metrics": {"time (ns)": 0, EVIL: 0}, "children": [child]}, {}])
    found = Elements(page)
    assert [attributes for tag, attributes in found.tags if tag == "script"] == [
        {"type": "application/json", "id": "profile"},
        {},
    ]
    assert not [tag for tag, attributes in found.tags if tag in ("img", "link", "iframe", "base")]
    assert not any({"src", "href", "style"} & attributes.keys() for _, attributes in found.tags)
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    assert EVIL in data_of(page)["names"]
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "") and "https:" not in page
    (policy,) = [
        attributes["content"] for tag, attributes in found.tags if tag == "meta" and "http-equiv" in attributes
    ]
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[\w+/]+=*'; style-src 'sha256-[\w+/]+=*'", policy or ""
    )


def test_ten_thousand_frames_fit_three_megabytes() -> None:
    profile = Profile()
    for number in range(10_000):
        node = profile.node((f"module_{number % 10}", f"layer_{number % 100}", f"kernel_{number}_of_some_length"))
        profile.add_launches(node, count=number, time_ns=10**6 + 7919 * number, device_type="CUDA", device_id=0)
        profile.add_to(node, {"flops16": 1e12 / (number + 1), "bytes": 12_345_678 + number, "loss (pty)": number / 7})
    page = export("html", profile.to_literal())
    assert len(data_of(page)["parent"]) > 10_000
    assert len(page.encode()) < 3_000_000


def test_the_roofline_in_numbers() -> None:
    profile = Profile()
    profile.device("CUDA", 0, **H100)
    for scope in ("a", "b"):
        node = profile.node((scope, "gemm"))
        profile.add_launches(node, count=1, time_ns=1_000_000, device_type="CUDA", device_id=0)
        profile.add_to(node, {"flops16": 3e11, "flops32": 1e11, "bytes": 10**9})
    profile.add_launches(profile.node(("copy",)), count=1, time_ns=5, device_type="CUDA", device_id=0)
    (device,) = data_of(export("html", profile.to_literal()))["roofline"]["devices"]
    (point,) = device["points"]
    peak = specs.max_flops("CUDA", "90", 16, 114, 1755000)
    assert (point["name"], point["intensity"], point["flops"]) == ("gemm", 400.0, pytest.approx(4e14))
    assert point["peak"] == pytest.approx(peak) == pytest.approx(756.5e12)
    assert device["bandwidth"] == pytest.approx(3352.32e9) and "H100" in device["source"]
    profile.add_to(profile.node(("b", "gemm")), {"flops": 4e11})  # which are those of known width once more
    (device,) = data_of(export("html", profile.to_literal()))["roofline"]["devices"]
    assert device["points"] == [point]
    assert {ceiling["name"] for ceiling in device["ceilings"]} >= {"fp16 tensor", "tf32 tensor", "fp32", "fp64"}


@pytest.mark.parametrize(
    ("metrics", "arch", "message"),
    [
        ({}, "90", "no flops and no bytes"),
        ({"bytes": 1}, "90", "has no flops"),
        ({"flops8": 1.0}, "90", "has no bytes"),
        ({"flops8": 1.0, "bytes": 1}, "61", "peaks are known"),
    ],
)
def test_without_a_roofline_the_page_says_why(metrics: dict, arch: str, message: str) -> None:
    profile = Profile()
    profile.device("CUDA", 0, **{**H100, "arch": arch})
    profile.add_launches(profile.node(("k",)), count=1, time_ns=9, device_type="CUDA", device_id=0)
    profile.add(("k",), metrics)
    roofline = data_of(export("html", profile.to_literal()))["roofline"]
    assert roofline["devices"] == [] and message in roofline["missing"]


NODE_PROGRAM = """
const vm = require("vm"), fs = require("fs");
const source = fs.readFileSync(process.argv[1], "utf8");
const context = vm.createContext({});
vm.runInContext(source, context);
const data = JSON.parse(fs.readFileSync(0, "utf8"));
context.data = data;
console.log(vm.runInContext(`
  const tree = makeTree(data), metric = tree.metrics[0];
  const sizes = sizesOf(tree, metric), starts = startsOf(tree, sizes);
  const inside = [...Array(tree.count).keys()].slice(1).every((i) => {
    const parent = tree.parent[i], end = starts[i] + sizes[i] - 1e-3, next = tree.end[i];
    return starts[i] >= starts[parent] - 1e-3 && end <= starts[parent] + sizes[parent] + 1e-3
      && (next >= tree.count || tree.parent[next] !== parent || starts[next] >= end);
  });
  const found = findFrames(tree, sizes, "kern");
  JSON.stringify({sizes: [...sizes], inside, share: found.share, count: found.count,
    rows: rowsByName(tree, metric).map((row) => [row.name, row.own, row.total]),
    broken: findFrames(tree, sizes, "/(/").active,
    read: [readable(1500, "ns"), readable(-2.5e-7, "s", true), readable(12345678, ""), readable(null, "")]});
`, context));
"""


@pytest.fixture(scope="module")
def node() -> Callable[[dict], dict]:
    """Runs tree.js on the data of a page."""
    if NODE is None:
        pytest.skip("needs a JavaScript engine: Node.js (Debian: apt-get install nodejs)")

    def run(data: dict) -> dict:
        command = [NODE, "-e", NODE_PROGRAM, str(PAGE / "tree.js")]
        done = subprocess.run(command, input=json.dumps(data), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@settings(max_examples=15)
@given(literals())
def test_the_scripts_compute_what_python_does(node: Callable[[dict], dict], literal: list) -> None:
    data = data_of(export("html", literal, "time"))
    result = node(data)
    assert result["sizes"] == [value or 0 for value in data["metrics"][0]["total"]]
    assert result["inside"] and result["broken"] is False
    assert result["read"] == ["1.5 us", "-250 ns", "12.35 M", "no value"]
    assert {name: (own or 0, total or 0) for name, own, total in result["rows"]} == by_name(literal[0])

    def matching(current: dict) -> float:
        if "kern" in current["frame"]["name"]:
            return summed(current, "time (ns)")
        return sum(matching(child) for child in current["children"])

    whole = summed(literal[0], "time (ns)")
    assert result["share"] == pytest.approx(matching(literal[0]) / whole if whole else 0)
    assert result["count"] == sum("kern" in current["frame"]["name"] for current in walk(literal[0]))
