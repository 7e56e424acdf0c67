"use strict";

// Parallel coordinates: an axis for each parameter, a line for each configuration. Drawn as two traces, the fastest
// tenth in front of the others, whose lines are parted by gaps. (Plotly's own kind of chart compiles code as it runs,
// which the page's policy forbids.)
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

function traceOf(trials, names, levels, style) {
  const trace = { type: "scatter", mode: "lines", x: [], y: [], text: [], hovertemplate: "%{text}<extra></extra>", ...style };
  for (const [config, time] of trials) {
    const text = `${(time / 1e3).toPrecision(4)} us<br>` + names.map((name) => `${name}=${config[name]}`).join("<br>");
    names.forEach((name, axis) => {
      const values = levels[axis];
      trace.x.push(axis);
      trace.y.push(values.length > 1 ? values.indexOf(config[name]) / (values.length - 1) : 0.5);
      trace.text.push(text);
    });
    trace.x.push(null);
    trace.y.push(null);
    trace.text.push("");
  }
  return trace;
}

// The levels of an axis that have a label: all where they are few. Plotly takes seconds for hundreds of labels.
const MOST_LABELS = 12;

function labelled(values) {
  const last = values.length - 1;
  if (last < MOST_LABELS) return values.map((_, level) => level);
  return Array.from({ length: MOST_LABELS }, (_, label) => Math.round(label * last / (MOST_LABELS - 1)));
}

function draw(box) {
  const names = JSON.parse(box.dataset.names);
  const trials = JSON.parse(box.dataset.trials).sort((a, b) => a[1] - b[1]);
  const levels = names.map((name) => [...new Set(trials.map(([config]) => config[name]))].sort(compare));
  const best = Math.max(1, Math.round(trials.length / 10));
  const ticks = levels.flatMap((values, axis) => labelled(values).map((level) => ({
    x: axis, y: values.length > 1 ? level / (values.length - 1) : 0.5, text: String(values[level]),
    xanchor: "left", xshift: 4, showarrow: false, font: { size: 11, color: colour("--text") }, bgcolor: colour("--card"),
  })));
  Plotly.react(box, [
    traceOf(trials.slice(best), names, levels, { name: "others", line: { width: 1, color: colour("--trial") }, opacity: 0.35 }),
    traceOf(trials.slice(0, best), names, levels, { name: `fastest ${best}`, line: { width: 2.5, color: colour("--best") } }),
  ], {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
    margin: { l: 24, r: 64, t: 40, b: 40 }, annotations: ticks,
    xaxis: { tickvals: names.map((_, axis) => axis), ticktext: names, gridcolor: colour("--line"), zeroline: false, range: [-0.1, names.length - 0.6] },
    yaxis: { visible: false, range: [-0.08, 1.08] },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
  }, { responsive: true, displaylogo: false, displayModeBar: false });
}

function drawAll() {
  document.querySelectorAll(".lines").forEach(draw);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
requestAnimationFrame(() => setTimeout(drawAll)); // once the tables are painted
