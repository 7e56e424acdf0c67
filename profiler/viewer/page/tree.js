"use strict";
// The profile as parallel arrays, and what is computed from them. Nothing here touches the page.

/**
 * Frames come parents first, each one's subtree in one piece: frame i has everything from i + 1 to end[i] below it.
 * metrics: {label, unit, sums, own, total} for what adds up, {label, unit, value} for the rest; missing values are
 * null. Of two profiles own, total and value are differences, and left and right hold those of each.
 */
function makeTree(data) {
  const count = data.parent.length;
  const depth = new Int32Array(count);
  const end = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    depth[i] = data.parent[i] < 0 ? 0 : depth[data.parent[i]] + 1;
    end[i] = i + 1;
  }
  for (let i = count - 1; i > 0; i--) {
    const parent = data.parent[i];
    if (end[i] > end[parent]) end[parent] = end[i];
  }
  return { ...data, count, depth, end, nameOf: (i) => data.names[data.name[i]] };
}

function* childrenOf(tree, i) {
  for (let child = i + 1; child < tree.end[i]; child = tree.end[child]) yield child;
}

/** Widths: for what adds up a frame's own value and all below it; of two profiles the larger own value of the two. */
function sizesOf(tree, metric) {
  const sizes = new Float64Array(tree.count);
  for (let i = tree.count - 1; i >= 0; i--) {
    let own = tree.end[i] === i + 1 ? 1 : 0; // without any metric that adds up: the number of leaves
    if (metric) own = metric.left ? Math.max(metric.left.own[i] || 0, metric.right.own[i] || 0) : metric.own[i] || 0;
    sizes[i] += Math.max(0, own);
    if (i > 0) sizes[tree.parent[i]] += sizes[i];
  }
  return sizes;
}

/** Where each frame begins, with the root from 0 to sizes[0]: children from the left, the frame's own part after them. */
function startsOf(tree, sizes) {
  const starts = new Float64Array(tree.count);
  const next = new Float64Array(tree.count);
  for (let i = 1; i < tree.count; i++) {
    const parent = tree.parent[i];
    starts[i] = next[i] = next[parent];
    next[parent] += sizes[i];
  }
  return starts;
}

/** A test for names: text in any case, or a regular expression between slashes; null for nothing or a broken one. */
function matcher(query) {
  if (!query) return null;
  const regex = /^\/(.+)\/(i?)$/.exec(query);
  if (regex) {
    try {
      const pattern = new RegExp(regex[1], regex[2]);
      return (name) => pattern.test(name);
    } catch {
      return null;
    }
  }
  const text = query.toLowerCase();
  return (name) => name.toLowerCase().includes(text);
}

/** Which frames match, how many, and the share of the whole that they and all below them have. */
function findFrames(tree, sizes, query) {
  const matches = new Uint8Array(tree.count);
  const test = matcher(query);
  if (!test) return { matches, count: 0, share: 0, active: false };
  const named = tree.names.map(test);
  let count = 0, size = 0, covered = 0;
  for (let i = 0; i < tree.count; i++) {
    if (!named[tree.name[i]]) continue;
    matches[i] = 1;
    count++;
    if (i >= covered) { // not inside another match
      size += sizes[i];
      covered = tree.end[i];
    }
  }
  return { matches, count, share: sizes[0] ? size / sizes[0] : 0, active: true };
}

/** A row for each name: own values added up, and totals but for those inside a frame of the same name. */
function rowsByName(tree, metric) {
  const rows = tree.names.map((name) => ({ name, own: null, total: null, value: null, frames: 0 }));
  const covered = new Int32Array(tree.names.length);
  const add = (sum, value) => (value === null || value === undefined ? sum : (sum ?? 0) + value);
  for (let i = 0; i < tree.count; i++) {
    const row = rows[tree.name[i]];
    row.frames++;
    if (metric.sums) {
      row.own = add(row.own, metric.own[i]);
      if (i >= covered[tree.name[i]]) {
        row.total = add(row.total, metric.total[i]);
        covered[tree.name[i]] = tree.end[i];
      }
    } else {
      row.value = row.frames === 1 ? metric.value[i] : null; // one frame has it, or nobody can say
    }
  }
  return rows;
}

/** Rows by a column, the largest first (names: the first first); those without a value last in either direction. */
function sortRows(rows, column, descending) {
  const sign = descending ? -1 : 1;
  return [...rows].sort((a, b) => {
    if (column === "name") return sign * (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
    if ((a[column] === null) !== (b[column] === null)) return a[column] === null ? 1 : -1;
    return sign * ((a[column] ?? 0) - (b[column] ?? 0)) || (a.name < b.name ? -1 : 1);
  });
}

const SECONDS = { s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9 };

/** A number as people read it: times in s, ms, us or ns, large ones with k, M, G, T, P. */
function readable(value, unit, signed) {
  if (value === null || value === undefined) return "no value";
  const sign = signed && value > 0 ? "+" : "";
  const size = Math.abs(value);
  if (unit in SECONDS) {
    const seconds = size * SECONDS[unit];
    const chosen = ["s", "ms", "us"].find((name) => seconds >= SECONDS[name]) ?? "ns";
    return `${sign}${short((value * SECONDS[unit]) / SECONDS[chosen])} ${chosen}`;
  }
  const prefix = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([bound]) => size >= bound);
  const text = prefix ? short(value / (prefix[1] === "k" ? 1e3 : prefix[0])) + " " + prefix[1] : short(value);
  return sign + text + (unit ? (prefix ? "" : " ") + unit : "");
}

function short(value) {
  return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : String(Number(value.toPrecision(4)));
}

function percent(share) {
  return (100 * share).toFixed(share < 0.1 ? 2 : 1) + " %";
}
