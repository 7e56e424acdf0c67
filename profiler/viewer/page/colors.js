"use strict";
// Colours of frames. None says anything that the text beside it does not say too.

const RAMPS = {
  light: { cool: [226, 232, 240], hot: [236, 112, 40], less: [58, 110, 220], same: [236, 238, 242], more: [214, 50, 44] },
  dark: { cool: [52, 58, 70], hot: [206, 96, 30], less: [64, 120, 232], same: [54, 58, 68], more: [206, 60, 54] },
};

function mix(from, to, part) {
  return `rgb(${from.map((low, at) => Math.round(low + (to[at] - low) * part)).join(",")})`;
}

/** Pale to strong, for a share from 0 to 1 (small ones are pulled apart). */
function heat(ramp, share) {
  return mix(ramp.cool, ramp.hot, Math.sqrt(Math.min(1, Math.max(0, share || 0))));
}

/** Red for more than before, blue for less, for a change from -1 to 1. */
function change(ramp, part) {
  const strength = Math.sqrt(Math.min(1, Math.abs(part || 0)));
  return mix(ramp.same, part >= 0 ? ramp.more : ramp.less, strength);
}

/** A function from a frame to its colour for a metric. */
function painter(tree, metric, ramp) {
  const values = metric.sums ? (metric.left ? metric.total : metric.own) : metric.value;
  let largest = 0;
  for (const value of values) if (value !== null && Math.abs(value) > largest) largest = Math.abs(value);
  const scale = largest || 1;
  if (tree.difference) return (i) => change(ramp, (values[i] ?? 0) / scale);
  return (i) => heat(ramp, (values[i] ?? 0) / scale);
}

/** Black or white, whichever reads better on a colour that `mix` made: contrast as WCAG 2.2 defines it. */
function inkOn(color) {
  const [red, green, blue] = color.match(/\d+/g).map((part) => {
    const light = part / 255;
    return light <= 0.04045 ? light / 12.92 : ((light + 0.055) / 1.055) ** 2.4;
  });
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return (luminance + 0.05) / 0.05 >= 1.05 / (luminance + 0.05) ? "#000" : "#fff";
}
