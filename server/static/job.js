"use strict";

// A job's page: reads the trials there are, then follows the job's event stream.
const jobId = location.pathname.split("/").pop();
const base = `/v1/jobs/${jobId}`;
const SHOWN_TRIALS = 200;
const MOST_POINTS = 8000;

const searches = new Map(); // "shape dtype" -> {x, y, text, best, bestX, places, finals}
const known = new Set(); // ids of the trials that the page began with: events may tell of them again
const body = document.getElementById("trials");
const chart = document.getElementById("chart");
let drawn = null;
let trials = 0;
let screened = 0;

function cell(text, className) {
  const td = document.createElement("td");
  td.textContent = text;
  if (className) td.className = className;
  return td;
}

function pill(state) {
  const span = document.createElement("span");
  span.className = "pill " + state.toLowerCase();
  span.textContent = state.replaceAll("_", " ");
  return span;
}

function timeText(ns) {
  if (ns === null || ns === undefined) return "–";
  for (const [factor, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]]) {
    if (ns >= factor || unit === "ns") {
      const value = ns / factor;
      return (value < 1000 ? Number(value.toPrecision(3)) : Math.round(value)) + " " + unit;
    }
  }
}

function pairs(object) {
  return Object.entries(object).map(([name, value]) => `${name}=${value}`).join(", ");
}

function searchOf(name) {
  if (!searches.has(name)) searches.set(name, { x: [], y: [], text: [], bestX: [], best: [], places: new Map(), finals: [] });
  return searches.get(name);
}

// Races and finals measure the same configurations again, more carefully: the last phase is drawn apart, where its
// configuration was screened, and does not move the line. `place` is the trial's number in its search.
function addPoint(name, phase, place, time, config) {
  const search = searchOf(name);
  const text = config.replaceAll(", ", "<br>");
  if (phase === "final") {
    search.finals.push({ x: search.places.get(config) ?? place, y: time / 1e3, text });
    return;
  }
  const last = search.best.length ? search.best[search.best.length - 1] : Infinity;
  search.x.push(place);
  search.y.push(time / 1e3);
  search.text.push(text);
  search.places.set(config, place);
  search.bestX.push(place);
  search.best.push(Math.min(last, time / 1e3));
  if (search.x.length > MOST_POINTS) thin(search);
}

// A page that stays open while a long search runs keeps every second point.
function thin(search) {
  for (const part of ["x", "y", "text", "bestX", "best"]) search[part] = search[part].filter((_, index) => index % 2);
  search.places = new Map(search.text.map((text, index) => [text.replaceAll("<br>", ", "), search.x[index]]));
}

function addTrial(shape, dtype, trial) {
  if (known.has(trial.id)) return;
  trials += 1;
  const name = `${pairs(shape)} ${dtype}`;
  const time = trial.time_ns ? trial.time_ns.median : null;
  if (trial.phase === "screen") screened += 1;
  if (time !== null && trial.phase !== "race") {
    addPoint(name, trial.phase, trial.number + 1, time, pairs(trial.config));
    addMeasurement(name, trial.measurement, pairs(trial.config));
    scheduleDraw();
  }
  addRow({
    id: trial.id, sequence: trials, shape: pairs(shape), dtype, phase: trial.phase, status: trial.status, ns: time,
    bound: trial.measurement && trial.measurement.bound, config: pairs(trial.config), error: trial.error,
  });
}

function addRow(trial) {
  const row = document.createElement("tr");
  const status = document.createElement("td");
  status.append(pill(trial.status));
  if (trial.error) status.title = trial.error;
  const number = cell("", "number");
  const link = document.createElement("a");
  link.href = `${location.pathname}/trials/${trial.id}`;
  link.textContent = String(trial.sequence);
  number.append(link);
  const config = document.createElement("td");
  const code = document.createElement("code");
  code.textContent = trial.config;
  config.append(code);
  row.append(
    number, cell(trial.shape), cell(trial.dtype), cell(trial.phase),
    status, cell(timeText(trial.ns), "number"), cell(trial.bound || "–"), config,
  );
  body.prepend(row);
  while (body.rows.length > SHOWN_TRIALS) body.deleteRow(-1);
}

function scheduleDraw() {
  if (drawn === null) drawn = setTimeout(() => { drawn = null; draw(); drawRoofline(); }, 150);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function draw() {
  const several = searches.size > 1;
  const wheel = [colour("--best"), "#d9722e", "#2f9e6e", "#a15bd6", "#c94f7c", "#3aa5b8", "#a08a2a", "#8a8f99"];
  const traces = [];
  [...searches].forEach(([name, search], index) => {
    const shade = wheel[index % wheel.length];
    traces.push({
      type: "scatter", mode: "markers", name: several ? name : "trial", legendgroup: name, showlegend: !several,
      x: [...search.x], y: [...search.y], text: [...search.text], // new arrays: Plotly compares identities
      marker: { size: 6, color: several ? shade : colour("--trial"), opacity: several ? 0.45 : 0.9 },
      hovertemplate: "%{y:.3~f} us<br>%{text}<extra></extra>",
    });
    traces.push({
      type: "scatter", mode: "lines", name: several ? name : "best so far", legendgroup: name,
      x: [...search.bestX], y: [...search.best], line: { shape: "hv", width: 2.5, color: shade },
      hovertemplate: "best %{y:.3~f} us<extra></extra>",
    });
    if (search.finals.length) {
      traces.push({
        type: "scatter", mode: "markers", name: several ? `${name}, final` : "final", legendgroup: name, showlegend: !several,
        x: search.finals.map((one) => one.x), y: search.finals.map((one) => one.y), text: search.finals.map((one) => one.text),
        marker: { size: 11, symbol: "diamond-open", line: { width: 2 }, color: several ? shade : colour("--default") },
        hovertemplate: "final %{y:.3~f} us<br>%{text}<extra></extra>",
      });
    }
  });
  const times = [...searches.values()].flatMap((search) => [...search.y, ...search.finals.map((one) => one.y)]);
  // A logarithmic axis over less than a decade has hardly any labels.
  const type = Math.max(...times) > 10 * Math.min(...times) ? "log" : "linear";
  const grid = colour("--line");
  const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickcolor: grid };
  Plotly.react("chart", traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
    margin: { l: 72, r: 24, t: 56, b: 60 }, autosize: true,
    xaxis: { ...axis, title: { text: "trials of the shape", standoff: 8 }, rangemode: "tozero" },
    yaxis: { ...axis, title: { text: "time, us" }, type, rangemode: "tozero" },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hoverlabel: { font: { family: "monospace" } },
  }, { responsive: true, displaylogo: false, displayModeBar: false });
}

function showState(state) {
  document.getElementById("state").replaceChildren(pill(state.state));
  const error = document.getElementById("error");
  const final = ["succeeded", "failed", "cancelled"].includes(state.state);
  error.hidden = !state.reason;
  error.textContent = state.reason || "";
  const cancel = document.getElementById("cancel");
  cancel.hidden = final;
  cancel.disabled = state.cancel_requested;
  const bar = document.querySelector("#progress progress");
  if (final) bar.max = Math.max(screened, 1);
  showProgress();
}

function showProgress() {
  const bar = document.querySelector("#progress progress");
  bar.value = Math.min(screened, bar.max);
  document.querySelector("#progress .count").textContent = `${trials} trials`;
}

async function showResults() {
  const answer = await fetch(`/jobs/${jobId}/results`);
  if (!answer.ok) return;
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.getElementById("results").replaceChildren(...parsed.body.childNodes);
}

document.getElementById("cancel").addEventListener("click", async (event) => {
  event.currentTarget.disabled = true;
  await fetch(`${base}/cancel`, { method: "POST" });
});

// What there is: the newest rows, and points of a job of any size. Events tell what comes after.
async function begin() {
  const answer = await fetch(`/jobs/${jobId}/charts`);
  if (!answer.ok) return;
  const charts = await answer.json();
  trials = charts.trials;
  screened = charts.screened;
  for (const point of charts.points) {
    known.add(point.id);
    addPoint(point.search, point.phase, point.number + 1, point.ns, point.config);
    addMeasurement(point.search, point, point.config);
  }
  for (const row of charts.rows.reverse()) {
    known.add(row.id);
    addRow(row);
  }
  addRoofs(charts.roofs);
  const measured = charts.points.length;
  if (measured && charts.trials > 1.5 * measured) {
    const note = document.getElementById("sampled");
    note.textContent = `${measured} of ${charts.trials} trials are drawn: evenly spaced ones, and all that were the best so far.`;
    note.hidden = false;
  }
  draw();
  drawRoofline();
  showProgress();
  if (chart.hasAttribute("data-open")) follow(charts.after);
}

function follow(after) {
  const stream = new EventSource(`${base}/events?after=${after}`);
  stream.addEventListener("trial_finished", (message) => {
    const event = JSON.parse(message.data);
    addTrial(event.shape, event.dtype, event.trial);
    showProgress();
  });
  stream.addEventListener("shape_finished", showResults);
  stream.addEventListener("job_state", (message) => {
    const state = JSON.parse(message.data);
    showState(state);
    if (["succeeded", "failed", "cancelled"].includes(state.state)) {
      stream.close();
      showResults();
    }
  });
  window.addEventListener("pagehide", () => stream.close());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); drawRoofline(); });
begin();
