"use strict";
// The roofline: operations per second over operations per byte, both logarithmic, below the ceilings of each device.

const SVG = "http://www.w3.org/2000/svg";
const CHART = { width: 900, height: 460, left: 78, right: 210, top: 20, bottom: 50 };

function drawn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Powers of ten around all values. */
function decades(values) {
  const logs = values.filter((value) => value > 0).map(Math.log10);
  const low = Math.floor(Math.min(...logs)), high = Math.ceil(Math.max(...logs));
  return [low, Math.max(high, low + 1)];
}

/** What a device can do at an intensity: the smaller of a class's peak and intensity times bandwidth. */
function attainable(peak, bandwidth, intensity) {
  return Math.min(peak, intensity * bandwidth);
}

function scales(device, points) {
  const peaks = device.ceilings.map((ceiling) => ceiling.flops);
  const [x0, x1] = decades([...points.map((p) => p.intensity), ...peaks.map((peak) => peak / device.bandwidth)]);
  const [y0, y1] = decades([...points.map((p) => p.flops), ...peaks]);
  const x = (value) => CHART.left + ((Math.log10(value) - x0) / (x1 - x0)) * (CHART.width - CHART.left - CHART.right);
  const y = (value) => CHART.height - CHART.bottom - ((Math.log10(value) - y0) / (y1 - y0)) * (CHART.height - CHART.top - CHART.bottom);
  return { x, y, x0, x1, y0, y1 };
}

function axes(scale) {
  const parts = [];
  for (let power = scale.x0; power <= scale.x1; power++) {
    const at = scale.x(10 ** power);
    parts.push(drawn("line", { class: "grid", x1: at, x2: at, y1: CHART.top, y2: CHART.height - CHART.bottom }));
    parts.push(drawn("text", { x: at, y: CHART.height - CHART.bottom + 16, "text-anchor": "middle" }, String(10 ** power)));
  }
  for (let power = scale.y0; power <= scale.y1; power++) {
    const at = scale.y(10 ** power);
    parts.push(drawn("line", { class: "grid", x1: CHART.left, x2: CHART.width - CHART.right, y1: at, y2: at }));
    parts.push(drawn("text", { x: CHART.left - 6, y: at + 4, "text-anchor": "end" }, readable(10 ** power, "")));
  }
  const middle = (CHART.left + CHART.width - CHART.right) / 2;
  parts.push(drawn("text", { x: middle, y: CHART.height - 12, "text-anchor": "middle" }, "operations per byte"));
  const turned = `translate(14 ${(CHART.top + CHART.height - CHART.bottom) / 2}) rotate(-90)`;
  parts.push(drawn("text", { transform: turned, "text-anchor": "middle" }, "operations per second"));
  return parts;
}

/** Ceilings from the highest; those of one height, as far as eyes can tell, are one with both names. */
function merged(ceilings) {
  const found = [];
  for (const ceiling of [...ceilings].sort((a, b) => b.flops - a.flops)) {
    const last = found.at(-1);
    if (last && last.flops < 1.05 * ceiling.flops) last.name += `, ${ceiling.name}`;
    else found.push({ ...ceiling });
  }
  return found;
}

function roofs(device, scale) {
  let lowest = -Infinity; // labels keep a distance
  return merged(device.ceilings).flatMap((ceiling) => {
    const ridge = ceiling.flops / device.bandwidth, low = 10 ** scale.x0, high = 10 ** scale.x1;
    const bottom = Math.max(low, 10 ** scale.y0 / device.bandwidth);
    const path = [bottom, ridge, high].map((at) => `${scale.x(at)},${scale.y(attainable(ceiling.flops, device.bandwidth, at))}`);
    const label = `${ceiling.name} ${readable(ceiling.flops, "")}FLOP/s`;
    lowest = Math.max(scale.y(ceiling.flops) + 4, lowest + 15);
    return [
      drawn("polyline", { class: "roof", points: path.join(" ") }),
      drawn("text", { x: CHART.width - CHART.right + 6, y: lowest }, label),
    ];
  });
}

function chart(device, points) {
  const scale = scales(device, points);
  const dots = points.map((point) => {
    const text = `${point.name}: ${readable(point.flops, "FLOP/s")} at ${short(point.intensity)} operations per byte`;
    const place = { cx: scale.x(point.intensity), cy: scale.y(point.flops), r: 5 };
    return drawn("circle", { class: "point", ...place, tabindex: 0, role: "img", "aria-label": text }, drawn("title", {}, text));
  });
  const size = { viewBox: `0 0 ${CHART.width} ${CHART.height}`, width: CHART.width, height: CHART.height };
  return drawn("svg", { ...size, role: "group", "aria-label": `Roofline of ${device.name}` }, ...axes(scale), ...roofs(device, scale), ...dots);
}

function pointTable(device, points) {
  const best = Math.max(...device.ceilings.map((ceiling) => ceiling.flops));
  const rows = points.map((point) => {
    const roof = attainable(point.peak ?? best, device.bandwidth, point.intensity);
    const cells = [readable(point.flops, "FLOP/s"), short(point.intensity), percent(point.flops / roof), point.name];
    return element("tr", {}, ...cells.map((text) => element("td", {}, text)));
  });
  const heads = ["speed", "operations per byte", "of its roof", "kernel"].map((text) => element("th", { scope: "col" }, text));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
}

function showRoofline(section, roofline) {
  section.replaceChildren();
  if (roofline.missing) section.append(element("p", {}, roofline.missing));
  for (const device of roofline.devices) {
    section.append(element("h2", {}, device.name), element("p", {}, device.source));
    section.append(chart(device, device.points), pointTable(device, device.points));
  }
}
