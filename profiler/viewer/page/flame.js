"use strict";
// The icicle and flame picture: drawing, pointing, zooming and moving by keys.

const ROW = 22; // pixels of a frame's height

class Picture {
  constructor(canvas, tree, tell) {
    Object.assign(this, { canvas, tree, tell, zoomed: 0, focused: 0, upward: false, found: null });
    this.deepest = tree.depth.reduce((a, b) => Math.max(a, b), 0);
    canvas.addEventListener("click", (event) => this.at(event, (i) => this.zoom(i)));
    canvas.addEventListener("mousemove", (event) => this.at(event, (i) => this.tell.details(i)));
    canvas.addEventListener("mouseleave", () => this.tell.details(this.focused));
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
  }

  /** New widths and colours: another metric, another theme. */
  show(sizes, color) {
    this.sizes = sizes;
    this.starts = startsOf(this.tree, sizes);
    this.color = color;
    this.draw();
  }

  /** The part of the root that is in view: [where it begins, how wide it is]. */
  window() {
    const width = this.sizes[this.zoomed];
    return width > 0 ? [this.starts[this.zoomed], width] : [0, this.sizes[0] || 1];
  }

  top(i) {
    return (this.upward ? this.deepest - this.tree.depth[i] : this.tree.depth[i]) * ROW;
  }

  draw() {
    const { canvas } = this, ratio = window.devicePixelRatio || 1;
    canvas.height = Math.min(32000, Math.round((this.deepest + 1) * ROW * ratio));
    canvas.style.height = `${canvas.height / ratio}px`;
    const width = canvas.clientWidth; // after the height: scroll bars come and go with it
    canvas.width = Math.round(width * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const style = getComputedStyle(document.body);
    this.ink = style.color;
    this.paper = style.backgroundColor;
    this.drawn = 0;
    const [from, extent] = this.window(), { tree } = this;
    for (let i = 0; i < tree.count; i++) {
      const left = ((this.starts[i] - from) / extent) * width, wide = (this.sizes[i] / extent) * width;
      if (left >= width || left + wide <= 0 || wide < 0.4) {
        i = tree.end[i] - 1; // nothing below can be seen either
        continue;
      }
      const shown = Math.max(0, left);
      this.box(pen, i, shown, Math.min(width, left + wide) - shown);
    }
  }

  box(pen, i, left, wide) {
    const top = this.top(i), found = this.found?.active, match = found && this.found.matches[i];
    pen.globalAlpha = found && !match ? 0.35 : 1;
    const color = this.color(i);
    pen.fillStyle = color;
    pen.fillRect(left, top, wide > 3 ? wide - 1 : wide, ROW - 1);
    this.drawn++;
    if (wide > 24) {
      pen.globalAlpha = found && !match ? 0.75 : 1;
      pen.fillStyle = inkOn(color);
      const mark = this.tree.difference ? this.tell.sign(i) : "";
      pen.fillText(fitted(pen, (match ? "★ " : "") + mark + this.tree.nameOf(i), wide - 8), left + 4, top + ROW / 2);
    }
    pen.globalAlpha = 1;
    if (match) this.outline(pen, left, top, wide, 2);
    if (i === this.focused && document.activeElement === this.canvas) this.outline(pen, left, top, wide, 3);
  }

  outline(pen, left, top, wide, thick) {
    pen.strokeStyle = this.ink;
    pen.lineWidth = thick;
    pen.strokeRect(left + 1, top + 1, Math.max(1, wide - 2.6), ROW - 3);
  }

  at(event, then) {
    const area = this.canvas.getBoundingClientRect();
    const [from, extent] = this.window();
    const place = from + ((event.clientX - area.left) / area.width) * extent;
    const row = Math.floor((event.clientY - area.top) / ROW);
    const depth = this.upward ? this.deepest - row : row;
    const i = this.frameAt(place, depth);
    if (i >= 0) then(i);
  }

  frameAt(place, depth) {
    let i = 0;
    while (this.tree.depth[i] < depth) {
      let inside = -1;
      for (const child of childrenOf(this.tree, i)) {
        if (place >= this.starts[child] && place < this.starts[child] + this.sizes[child]) inside = child;
      }
      if (inside < 0) return -1;
      i = inside;
    }
    return i;
  }

  zoom(i) {
    this.zoomed = this.focused = i;
    this.draw();
    this.tell.zoomed(i);
    this.tell.details(i);
  }

  focus(i) {
    this.focused = i;
    const [from, extent] = this.window();
    const outside = this.starts[i] + this.sizes[i] <= from || this.starts[i] >= from + extent;
    if (outside || this.tree.depth[i] < this.tree.depth[this.zoomed]) {
      this.zoom(i);
      return;
    }
    this.draw();
    this.tell.details(i);
  }

  key(event) {
    const { tree, focused } = this;
    const deeper = this.upward ? "ArrowUp" : "ArrowDown", shallower = this.upward ? "ArrowDown" : "ArrowUp";
    const siblings = focused > 0 ? [...childrenOf(tree, tree.parent[focused])] : [0];
    const place = siblings.indexOf(focused);
    const target = {
      [deeper]: this.largestChild(focused),
      [shallower]: tree.parent[focused],
      ArrowLeft: siblings[place - 1],
      ArrowRight: siblings[place + 1],
      Home: 0,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") this.zoom(focused);
    else if (event.key === "Escape") this.zoom(0);
    else if (event.key in { ArrowUp: 1, ArrowDown: 1, ArrowLeft: 1, ArrowRight: 1, Home: 1 }) {
      if (target !== undefined && target >= 0) this.focus(target);
    } else return;
    event.preventDefault();
  }

  largestChild(i) {
    let best = -1;
    for (const child of childrenOf(this.tree, i)) if (best < 0 || this.sizes[child] > this.sizes[best]) best = child;
    return best;
  }
}

/** As much of a text as fits, with an ellipsis where something is missing. */
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let low = 0, high = Math.min(text.length, 400);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? text.slice(0, low) + "…" : "";
}
