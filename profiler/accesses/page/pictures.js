"use strict";
// Decoding accesses, where elements lie, pictures. `encode.py` says how an access is written.

const WARP = 32, BANKS = 32, BANK_BYTES = 4, LINE_BYTES = 128, TALLEST = 420;

// ---- accesses

function tileSize(shape) { return shape.reduce((product, length) => product * length, 1); }

/** The lengths of off, on, off ... as flags. */
function flagsOf(runs, size) {
  const flags = new Uint8Array(size);
  let at = 0;
  runs.forEach((length, i) => { if (i % 2) flags.fill(1, at, at + length); at += length; });
  return flags;
}

function maskOf(mask, shape) {
  const size = tileSize(shape);
  if (mask === 0) return new Uint8Array(size).fill(1);
  if (!Array.isArray(mask[0])) return flagsOf(mask, size);
  const lines = mask.map((runs, axis) => flagsOf(runs, shape[axis]));
  const flags = new Uint8Array(size);
  for (let lane = 0; lane < size; lane++) {
    let rest = lane, on = 1;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      on &= lines[axis][rest % shape[axis]];
      rest = Math.floor(rest / shape[axis]);
    }
    flags[lane] = on;
  }
  return flags;
}

/** Distances of all elements from the array's start (or from address 0) in bytes. */
function distancesOf([, , , base, strides, steps], shape) {
  const size = tileSize(shape), found = new Float64Array(size);
  if (strides === 0) {
    let at = base, lane = 0;
    if (size) found[lane++] = at;
    for (let i = 0; i < steps.length; i += 2) for (let n = 0; n < steps[i + 1]; n++) found[lane++] = at += steps[i];
    return found;
  }
  const index = shape.map(() => 0);
  let at = base;
  for (let lane = 0; lane < size; lane++) {
    found[lane] = at;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return found;
}

/** An access with one entry for each element of its tile. */
function decode(launch, access) {
  const [number, program, array, , , , mask, outside] = access, operation = launch.operations[number];
  const distances = distancesOf(access, operation.shape), size = distances.length;
  return {
    number, program, array, operation, distances, active: maskOf(mask, operation.shape),
    outside: outside === 0 ? new Uint8Array(size) : flagsOf(outside, size),
  };
}

/** The element at a distance from the array's start, in C order, or -1: as RecordedArray.positions. */
function positionOf(array, distance) {
  if (distance < 0 || distance >= array.size) return -1;
  let rest = distance, found = 0;
  for (const { axis, length, stride, weight } of array.axes) {
    const index = Math.floor(rest / Math.abs(stride));
    if (index >= length) return -1;
    rest -= index * Math.abs(stride);
    found += (stride > 0 ? index : length - 1 - index) * weight;
  }
  return rest < array.itemsize ? found : -1;
}

function prepare(launch) {
  launch.arrays.forEach((array) => {
    array.axes = array.shape.map((length, axis) => ({
      axis, length, stride: array.strides[axis], weight: tileSize(array.shape.slice(axis + 1)),
    })).filter(({ length, stride }) => length > 1 && stride).sort((a, b) => Math.abs(b.stride) - Math.abs(a.stride));
  });
  const byProgram = new Map();
  launch.accesses.forEach((access, at) => {
    if (!byProgram.has(access[1])) byProgram.set(access[1], []);
    byProgram.get(access[1]).push(at);
  });
  launch.programs = [...byProgram.keys()];
  launch.steps = [...byProgram.values()];
  return launch;
}

/** Where in array `at` the elements of a decoded access lie: each active lane, distance from its start. */
function eachIn(launch, at, access, visit) {
  if (access.array !== -1 && access.array !== at) return;
  const shift = access.array === -1 ? launch.arrays[at].start : 0;
  for (let lane = 0; lane < access.distances.length; lane++) {
    if (!access.active[lane]) continue;
    const distance = access.distances[lane] - shift;
    if (access.array === -1 && arrayAt(launch, access.distances[lane]) !== at) continue;
    visit(distance, lane);
  }
}

function arrayAt(launch, address) {
  return launch.arrays.findIndex(({ start, size }) => address >= start && address < start + size);
}

// ---- words

function indexText(index, shape) {
  if (!shape.length) return "";
  const parts = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    parts.unshift(index % shape[axis]);
    index = Math.floor(index / shape[axis]);
  }
  return `[${parts.join(", ")}]`;
}

function programText(launch, serial) {
  const [x, y] = launch.grid;
  return `${serial} (${serial % x}, ${Math.floor(serial / x) % y}, ${Math.floor(serial / (x * y))})`;
}

function shapeText(shape) { return shape.length ? shape.join(" × ") : "one element"; }

function addressText(number) {
  return Number.isSafeInteger(number) && number >= 0 ? `address 0x${number.toString(16)}` : "an address far outside";
}

function timesText(count) { return count === 1 ? "once" : `${count} times`; }

function bytesText(bytes) {
  return bytes < 10000 ? `${bytes} B` : bytes < 1e7 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`;
}

/** What an element of a tile that touches distance `at` of an array is, in words. */
function elementText(launch, array, distance, size) {
  if (array === -1) return "no array";
  const found = launch.arrays[array], position = positionOf(found, distance);
  if (position >= 0) return `${found.name}${indexText(position, found.shape)}`;
  if (distance >= 0 && distance < found.size) return `a gap between elements of ${found.name}`;
  return `element ${Math.floor(distance / size)} of ${found.name}, which has ${found.elements}`;
}

// ---- pictures

/** Cells in rows on a canvas, several elements a cell where they would not fit, with a cursor that keys move. */
class Grid {
  constructor(canvas, moved) {
    this.canvas = canvas;
    this.cursor = 0;
    this.moved = moved;
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * this.across);
      const row = Math.floor((event.clientY - box.top) / box.height * this.down);
      this.cursor = Math.min(this.across - 1, column) + this.across * Math.min(this.down - 1, row);
      this.moved(this.cursor);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = this.cursor + step;
      if (next >= 0 && next < this.across * this.down) this.cursor = next;
      this.moved(this.cursor);
    });
  }

  /** Make room for so many rows and columns; returns elements a cell across and down. */
  resize(rows, columns) {
    const room = Math.max(120, Math.min(760, this.canvas.parentElement.clientWidth || 360));
    this.foldX = Math.max(1, Math.ceil(columns / room));
    this.foldY = Math.max(1, Math.ceil(rows / TALLEST));
    this.across = Math.max(1, Math.ceil(columns / this.foldX));
    this.down = Math.max(1, Math.ceil(rows / this.foldY));
    this.cell = Math.max(1, Math.min(18, Math.floor(room / this.across), Math.floor(TALLEST / this.down)));
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [this.across * this.cell, this.down * this.cell];
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(scale, scale);
    this.cursor = Math.min(this.cursor, this.across * this.down - 1);
  }

  cellOf(row, column) { return Math.floor(row / this.foldY) * this.across + Math.floor(column / this.foldX); }

  paint(cell, color, mark) {
    const { pen, cell: side } = this, x = (cell % this.across) * side, y = Math.floor(cell / this.across) * side;
    const gap = side > 5 ? 1 : 0;
    pen.fillStyle = color;
    pen.fillRect(x, y, side - gap, side - gap);
    if (!mark || side < 5) return;
    // Never by colour alone: a cross is out of bounds, a stroke is masked off.
    pen.strokeStyle = mark.color;
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.moveTo(x + 1, y + side - gap - 1);
    pen.lineTo(x + side - gap - 1, y + 1);
    if (mark.cross) {
      pen.moveTo(x + 1, y + 1);
      pen.lineTo(x + side - gap - 1, y + side - gap - 1);
    }
    pen.stroke();
  }

  paintCursor(color) {
    const { pen, cell: side } = this;
    pen.strokeStyle = color;
    pen.lineWidth = 2;
    const x = (this.cursor % this.across) * side, y = Math.floor(this.cursor / this.across) * side;
    pen.strokeRect(Math.max(1, x), Math.max(1, y), Math.max(3, side - 1), Math.max(3, side - 1));
  }
}

/** Rows and columns of an array's picture: `place(distance)` is [row, column], rows outside included. */
function layoutOf(array, view, margin) {
  const memory = view === "1", bytes = Math.max(1, array.itemsize);
  const cells = memory ? Math.ceil(array.size / bytes) : array.elements;
  const last = array.shape.length ? array.shape[array.shape.length - 1] : 1;
  const columns = memory || array.shape.length < 2 ? Math.max(1, Math.floor(LINE_BYTES / bytes)) : Math.max(1, last);
  const rows = Math.max(1, Math.ceil(cells / columns));
  const before = margin.before ? Math.min(2, Math.ceil(margin.before / columns)) : 0;
  const after = margin.after ? Math.min(3, Math.ceil(margin.after / columns) + (cells % columns ? 1 : 0)) : 0;
  const place = (distance) => {
    let at = distance >= 0 && distance < array.size
      ? memory ? Math.floor(distance / bytes) : positionOf(array, distance)
      : distance < 0 ? Math.max(Math.floor(distance / bytes), -before * columns)
        : Math.min(cells + Math.floor((distance - array.size) / bytes), (rows + after) * columns - 1);
    if (at === -1 && distance >= 0) return null; // a gap between elements
    at += before * columns;
    return [Math.floor(at / columns), at % columns];
  };
  return { cells, columns, rows: rows + before + after, before, place, memory };
}

/** How many elements lie before and behind an array, at most, in any access. */
function marginOf(launch, at) {
  const array = launch.arrays[at], margin = { before: 0, after: 0 }, bytes = Math.max(1, array.itemsize);
  for (const access of launch.accesses) {
    if (access[2] !== at || access[7] === 0) continue;
    const { distances, outside } = decode(launch, access);
    distances.forEach((distance, lane) => {
      if (!outside[lane]) return;
      if (distance < 0) margin.before = Math.max(margin.before, Math.ceil(-distance / bytes));
      else margin.after = Math.max(margin.after, Math.floor((distance - array.size) / bytes) + 1);
    });
  }
  return margin;
}

/** What all accesses do to each cell: how often it is read and written, by whom, and what is outside. */
function totalsOf(launch, at, layout, grid) {
  const size = grid.across * grid.down;
  const totals = { read: new Float64Array(size), written: new Float64Array(size), who: new Int32Array(size).fill(-1), outside: new Uint8Array(size) };
  for (const access of launch.accesses) {
    if (access[2] !== -1 && access[2] !== at) continue;
    const decoded = decode(launch, access), { kind, size: bytes } = decoded.operation;
    const wide = Math.max(1, Math.floor(bytes / Math.max(1, launch.arrays[at].itemsize)));
    eachIn(launch, at, decoded, (distance, lane) => {
      for (let part = 0; part < wide; part++) {
        const place = layout.place(distance + part * launch.arrays[at].itemsize);
        if (!place) continue;
        const cell = grid.cellOf(...place);
        if (decoded.outside[lane]) { totals.outside[cell] = 1; continue; }
        if (kind !== "store") totals.read[cell]++;
        if (kind !== "load") totals.written[cell]++;
        if (totals.who[cell] === -1) totals.who[cell] = decoded.program;
        else if (totals.who[cell] !== decoded.program) totals.who[cell] = -2;
      }
    });
  }
  return totals;
}

function made(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
