"use strict";

// The roofline of a job: what its trials did a second over how many operations they do a byte, and what the device can.
// Drawn by job.js, which brings the trials.
const rooflines = new Map(); // "shape dtype" -> {x, y, text}
const roofs = [];

function addMeasurement(name, measured, config) {
  if (!measured || !measured.flop_s || !measured.byte_s) return;
  if (!rooflines.has(name)) rooflines.set(name, { x: [], y: [], text: [] });
  const line = rooflines.get(name);
  line.x.push(measured.flop_s / measured.byte_s);
  line.y.push(measured.flop_s / 1e9);
  line.text.push(config.replaceAll(", ", "<br>"));
  if (line.x.length > MOST_POINTS) for (const part of ["x", "y", "text"]) line[part] = line[part].filter((_, index) => index % 2);
}

function addRoofs(found) {
  roofs.push(...found);
}

// Two straight lines on logarithmic axes, which meet where the device has as many bytes as operations for the kernel.
function roofTrace(roof, low, high, shade) {
  const ridge = roof.flop_s / roof.byte_s;
  const x = [Math.min(low, ridge) / 4, ridge, Math.max(high, ridge) * 4];
  return {
    type: "scatter", mode: "lines", name: `the device, ${roof.dtype}`, x,
    y: x.map((intensity) => Math.min(roof.flop_s, intensity * roof.byte_s) / 1e9),
    line: { width: 2.5, color: shade }, hovertemplate: "at most %{y:.4~g} Gop/s<extra></extra>",
  };
}

function drawRoofline() {
  document.getElementById("roof").hidden = rooflines.size === 0;
  if (rooflines.size === 0) return;
  const wheel = [colour("--trial"), "#d9722e", "#2f9e6e", "#a15bd6", "#c94f7c", "#3aa5b8", "#a08a2a", "#8a8f99"];
  const traces = [...rooflines].map(([name, line], index) => ({
    type: "scatter", mode: "markers", name, x: [...line.x], y: [...line.y], text: [...line.text],
    marker: { size: 6, color: wheel[index % wheel.length], opacity: 0.7 },
    hovertemplate: "%{y:.4~g} Gop/s at %{x:.3~g} a byte<br>%{text}<extra></extra>",
  }));
  const intensities = [...rooflines.values()].map((line) => line.x[0]);
  for (const roof of roofs) {
    traces.push(roofTrace(roof, Math.min(...intensities), Math.max(...intensities), colour("--muted")));
  }
  const axis = { type: "log", gridcolor: colour("--line"), zeroline: false, linecolor: colour("--line"), exponentformat: "power", dtick: 1 };
  Plotly.react("roofline", traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
    margin: { l: 72, r: 24, t: 56, b: 60 },
    xaxis: { ...axis, title: { text: "operations a byte", standoff: 8 } },
    yaxis: { ...axis, title: { text: "Gop/s" } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hoverlabel: { font: { family: "monospace" } },
  }, { responsive: true, displaylogo: false, displayModeBar: false });
}
