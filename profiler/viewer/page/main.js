"use strict";
// The page: which view is open, for which metric, with which search.

function start() {
  const began = performance.now();
  const byId = (id) => document.getElementById(id);
  const tree = makeTree(JSON.parse(byId("profile").textContent));
  const state = { view: "icicle", metric: tree.metrics[0], sizing: null, query: "", found: null };
  const inTab = { icicle: "picture", flame: "picture", table: "table", roofline: "roofline" };

  const tell = {
    sign: (i) => {
      const part = (state.metric.sums ? state.metric.total : state.metric.value)[i];
      return tree.side[i] === 1 ? "◀ " : tree.side[i] === 2 ? "▶ " : part > 0 ? "+ " : part < 0 ? "− " : "";
    },
    details: (i) => { byId("details").textContent = describe(i); },
    zoomed: crumbs,
  };
  const picture = new Picture(byId("canvas"), tree, tell);
  const table = new NameTable(byId("table"), tree);

  function describe(i) {
    const { metric } = state, at = (numbers) => readable(numbers[i], metric.unit, tree.difference);
    const parts = [tree.nameOf(i)];
    if (metric.sums) {
      const whole = metric.total[0];
      const share = !tree.difference && whole && metric.total[i] !== null ? `, ${percent(metric.total[i] / whole)}` : "";
      parts.push(`${metric.label} ${at(metric.total)}${share}`, metric.own[i] === null ? "" : `self ${at(metric.own)}`);
    } else parts.push(`${metric.label} ${at(metric.value)}`);
    if (tree.difference) parts.push(sides(i));
    return parts.filter(Boolean).join(" · ");
  }

  function sides(i) {
    if (tree.side[i]) return `only in ${tree.titles[tree.side[i] - 1]}`;
    const { left, right, unit } = state.metric, numbers = (side) => readable((side.total ?? side.value)[i], unit);
    return `${numbers(left)} after ${numbers(right)}`;
  }

  function crumbs(i) {
    const path = [];
    for (let at = i; at >= 0; at = tree.parent[at]) path.unshift(at);
    const buttons = path.map((at) => {
      const current = at === i ? { "aria-current": "location" } : {};
      return element("button", { type: "button", ...current, onclick: () => picture.zoom(at) }, tree.nameOf(at));
    });
    byId("crumbs").replaceChildren(...buttons.flatMap((button, at) => (at ? [" › ", button] : [button])));
  }

  function dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function legend(ramp) {
    const { metric } = state, sized = state.sizing ? state.sizing.label : "the number of leaves";
    if (!tree.difference) return `Width: ${sized}. Stronger colour: more ${metric.label}${metric.sums ? " of the frame itself" : ""}.`;
    const box = (color) => drawn("svg", { width: 14, height: 14 }, drawn("rect", { width: 14, height: 14, fill: color }));
    const [first, second] = tree.titles;
    return [box(change(ramp, 1)), ` + more ${metric.label} in ${first} (slower)  `, box(change(ramp, -1)),
      ` − less (faster)  ◀ only in ${first}  ▶ only in ${second}. Width: the larger ${sized} of the two.`];
  }

  function search() {
    state.found = findFrames(tree, picture.sizes, state.query);
    picture.found = state.found;
    const { active, count, share } = state.found;
    const broken = state.query && !active ? "not a regular expression" : "";
    byId("found").textContent = active ? `${count} found, ${percent(share)}` : broken;
  }

  /** Everything that follows from the state. */
  function update() {
    const ramp = RAMPS[dark() ? "dark" : "light"];
    state.sizing = state.metric.sums ? state.metric : (state.sizing ?? tree.metrics.find((metric) => metric.sums));
    for (const id of ["picture", "table", "roofline"]) byId(id).hidden = inTab[state.view] !== id;
    for (const tab of byId("tabs").children) {
      const selected = tab.dataset.view === state.view;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
    }
    picture.sizes = sizesOf(tree, state.sizing);
    search();
    if (inTab[state.view] === "picture") {
      picture.upward = state.view === "flame";
      picture.show(picture.sizes, painter(tree, state.metric, ramp));
      byId("legend").replaceChildren(...[legend(ramp)].flat());
      tell.details(picture.focused);
    } else if (state.view === "table") table.show(state.metric, state.query);
    else showRoofline(byId("roofline"), tree.roofline);
  }

  function open(view) {
    state.view = view;
    update();
  }

  tree.metrics.forEach((metric, at) => byId("metric").append(element("option", { value: String(at) }, metric.label)));
  byId("metric").addEventListener("change", (event) => { state.metric = tree.metrics[event.target.value]; update(); });
  byId("search").addEventListener("input", (event) => { state.query = event.target.value; update(); });
  byId("search").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    if (event.key === "Escape") { event.target.value = state.query = ""; update(); }
    if (inTab[state.view] === "picture") byId("canvas").focus();
  });
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    update();
  });
  byId("tabs").addEventListener("click", (event) => event.target.dataset.view && open(event.target.dataset.view));
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], tabs = [...byId("tabs").children];
    if (!step) return;
    const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
    open(next.dataset.view);
    next.focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === byId("search")) return;
    event.preventDefault();
    byId("search").focus();
  });
  window.addEventListener("resize", update);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", update);
  crumbs(0);
  update();
  document.documentElement.dataset.ready = String(Math.round(performance.now() - began));
  document.documentElement.dataset.drawn = String(picture.drawn);
}

start();
