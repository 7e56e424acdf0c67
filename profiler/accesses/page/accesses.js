// The page: what is shown, and what keys, sliders and buttons do. It follows pictures.js.

function start() {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const launches = data.launches.map(prepare);
  const state = { launch: launches[0], program: 0, step: 0, array: 0, cache: null };
  const arrayGrid = new Grid(byId("array-canvas"), () => drawArray());
  const tileGrid = new Grid(byId("tile-canvas"), () => drawTile());
  let current = null;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const hue = (serial) => `hsl(${Math.round(serial * 137.508) % 360} 62% ${dark() ? 62 : 45}%)`;

  function dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function fillSelects() {
    byId("notes").replaceChildren(...data.notes.map((note) => made("li", {}, note)));
    byId("launch").replaceChildren(...launches.map((launch, at) => made("option", { value: at }, `${launch.number}: ${launch.kernel}, grid ${launch.grid.join(" × ")}`)));
  }

  function showLaunch(at) {
    const launch = (state.launch = launches[at]);
    Object.assign(state, { program: 0, step: 0, array: 0, cache: null });
    byId("array").replaceChildren(...launch.arrays.map((array, i) => made("option", { value: i }, `${array.name}: ${array.dtype} ${shapeText(array.shape)}`)));
    byId("view").value = launch.arrays.some((array) => array.shape.length > 1) ? "2" : "1";
    byId("outside-next").disabled = !launch.accesses.some((access) => access[7] !== 0);
    byId("program").max = Math.max(0, launch.programs.length - 1);
    showTables();
    showStep();
  }

  /** Show step `state.step` of program `state.program` (places among those that were recorded). */
  function showStep() {
    const { launch } = state, steps = launch.steps[state.program] || [];
    state.step = Math.max(0, Math.min(state.step, steps.length - 1));
    byId("program").value = state.program;
    byId("step").max = Math.max(0, steps.length - 1);
    byId("step").value = state.step;
    current = steps.length ? decode(launch, launch.accesses[steps[state.step]]) : null;
    if (!current) {
      byId("step-text").textContent = "no access was recorded";
      byId("program-text").textContent = byId("line").textContent = "";
    } else {
      const { operation, active, outside } = current;
      const off = active.length - count(active), bad = count(outside);
      byId("program-text").textContent = `${programText(launch, current.program)}, ${state.program + 1} of ${launch.programs.length} shown`;
      const words = [`${state.step + 1} of ${steps.length}: ${operation.kind}, ${shapeText(operation.shape)} ${operation.dtype}`];
      if (off) words.push(`${off} masked off`);
      byId("step-text").replaceChildren(words.join(", "), ...(bad ? [", ", made("span", { class: "bad" }, `${bad} out of bounds`)] : []));
      byId("line").textContent = `${operation.file}:${operation.line}  ${operation.text}`;
      byId("line").className = bad ? "bad" : "";
      if (current.array >= 0) state.array = current.array;
    }
    for (const row of byId("operations").querySelectorAll("tbody tr")) {
      row.setAttribute("aria-current", String(Boolean(current) && Number(row.dataset.operation) === current.number));
    }
    tileGrid.cursor = 0;
    byId("array").value = state.array;
    draw();
  }

  function count(flags) { return flags.reduce((sum, flag) => sum + flag, 0); }

  function draw() { drawArray(); drawTile(); }

  function drawArray() {
    const { launch, array: at } = state, array = launch.arrays[at], view = byId("view").value;
    const mode = byId("colour").value;
    if (!array) return;
    const width = byId("array-canvas").parentElement.clientWidth;
    const key = [launch.number, at, view, width].join();
    if (!state.cache || state.cache.key !== key) {
      const layout = layoutOf(array, view, marginOf(launch, at));
      arrayGrid.resize(layout.rows, layout.columns);
      state.cache = { key, layout, totals: totalsOf(launch, at, layout, arrayGrid) };
    } else arrayGrid.resize(state.cache.layout.rows, state.cache.layout.columns);
    const { layout, totals } = state.cache, paper = color("bar"), red = color("red"), ink = color("ink");
    const own = new Set(), per = arrayGrid.foldX * arrayGrid.foldY;
    if (current) eachIn(launch, at, current, (distance) => {
      const place = layout.place(distance);
      if (place) own.add(arrayGrid.cellOf(...place));
    });
    const counts = totals[mode] || totals.read;
    let most = 1;
    for (const value of counts) if (value > most) most = value;
    const inside = cellsInside(layout), shade = painter(mode, paper);
    for (let cell = 0; cell < totals.who.length; cell++) {
      if (totals.outside[cell]) arrayGrid.paint(cell, red, { color: paper, cross: true });
      else if (inside[cell]) arrayGrid.paint(cell, shade(totals.who[cell], counts[cell] / most));
    }
    const now = color("now");
    for (const cell of own) {
      if (totals.outside[cell]) continue;
      if (mode === "step") arrayGrid.paint(cell, now);
      else if (arrayGrid.cell > 3) outline(cell, ink);
    }
    arrayGrid.paintCursor(color("accent"));
    const folded = per > 1 ? ` One cell is ${arrayGrid.foldY} × ${arrayGrid.foldX} elements.` : "";
    byId("array-title").textContent = `Array ${array.name}: ${array.dtype}, ${shapeText(array.shape)}`;
    byId("array-legend").textContent = {
      step: "Strong: this step. Pale: touched by some program. Grey: touched by none.",
      program: "A colour for each program; dark: several programs. Outlined: this step.",
      read: `From pale to strong: up to ${most} reads a cell. Outlined: this step.`,
      written: `From pale to strong: up to ${most} writes a cell. Outlined: this step.`,
    }[mode] + (totals.outside.some(Boolean) ? " Red, crossed: out of bounds." : "") + folded;
    byId("array-details").textContent = describeCell(layout);
    byId("array-canvas").setAttribute("aria-label", `Elements of ${array.name}`);
  }

  function outline(cell, ink) {
    const { pen, cell: side, across } = arrayGrid;
    pen.strokeStyle = ink;
    pen.lineWidth = 1;
    pen.strokeRect((cell % across) * side + 0.5, Math.floor(cell / across) * side + 0.5, side - 1.5, side - 1.5);
  }

  function cellsInside(layout) {
    const inside = new Uint8Array(arrayGrid.across * arrayGrid.down);
    const first = layout.before * layout.columns, last = first + layout.cells;
    for (let row = 0; row < layout.rows; row++) {
      const low = Math.max(first, row * layout.columns), high = Math.min(last, (row + 1) * layout.columns);
      for (let at = low; at < high; at += arrayGrid.foldX) inside[arrayGrid.cellOf(row, at % layout.columns)] = 1;
    }
    return inside;
  }

  /** From a cell's program and share of the largest count to its colour; colours are looked up once a drawing. */
  function painter(mode, paper) {
    const [now, seen, faint] = [color("now"), color("seen"), color("faint")];
    if (mode === "step") return (who) => (who === -1 ? paper : seen);
    if (mode === "program") return (who) => (who === -1 ? paper : who === -2 ? faint : hue(who));
    return (who, share) => (share ? `color-mix(in srgb, ${now} ${Math.round(15 + 85 * share)}%, ${paper})` : paper);
  }

  /** What happens to the cell under the cursor, over all accesses. */
  function describeCell(layout) {
    const { launch, array: at } = state, array = launch.arrays[at];
    let read = 0, written = 0, first = null, outside = 0;
    const readers = new Set(), writers = new Set(), lines = new Set(), elements = new Set();
    for (const access of launch.accesses) {
      if (access[2] !== -1 && access[2] !== at) continue;
      const decoded = decode(launch, access), { kind } = decoded.operation;
      eachIn(launch, at, decoded, (distance, lane) => {
        const place = layout.place(distance);
        if (!place || arrayGrid.cellOf(...place) !== arrayGrid.cursor) return;
        first ??= elementText(launch, at, distance, decoded.operation.size);
        elements.add(distance);
        lines.add(decoded.operation.line);
        if (decoded.outside[lane]) { outside++; return; }
        if (kind !== "store") { read++; readers.add(decoded.program); }
        if (kind !== "load") { written++; writers.add(decoded.program); }
      });
    }
    if (!first) return "Cursor: no recorded program touches this place.";
    const more = elements.size > 1 ? ` and ${elements.size - 1} more` : "";
    const parts = [`${first}${more}`];
    const by = (set) => `by ${set.size === 1 ? "program" : "programs"} ${[...set].slice(0, 12).join(", ")}${set.size > 12 ? ` and ${set.size - 12} more` : ""}`;
    if (outside) parts.push(`out of bounds, asked for ${timesText(outside)}`);
    if (read) parts.push(`read ${timesText(read)} ${by(readers)}`);
    if (written) parts.push(`written ${timesText(written)} ${by(writers)}`);
    return `${parts.join(" · ")} · line ${[...lines].join(", ")}`;
  }

  function drawTile() {
    const { launch } = state;
    if (!current) { tileGrid.resize(1, 1); byId("tile-details").textContent = ""; return; }
    const { shape, size } = current.operation, total = current.active.length;
    const columns = shape.length > 1 ? shape[shape.length - 1] : Math.min(WARP, total), rows = Math.ceil(total / columns);
    tileGrid.resize(rows, columns);
    const red = color("red"), off = color("off"), paper = color("paper"), now = color("now"), bar = color("bar");
    const worst = new Uint8Array(tileGrid.across * tileGrid.down);
    for (let lane = 0; lane < total; lane++) {
      const cell = tileGrid.cellOf(Math.floor(lane / columns), lane % columns);
      worst[cell] = Math.max(worst[cell], current.outside[lane] ? 3 : current.active[lane] ? 2 : 1);
    }
    worst.forEach((kind, cell) => {
      if (kind === 3) tileGrid.paint(cell, red, { color: paper, cross: true });
      else if (kind) tileGrid.paint(cell, kind === 2 ? now : bar, kind === 1 ? { color: off } : null);
    });
    tileGrid.paintCursor(color("ink"));
    byId("tile-title").textContent = `Tile: ${current.operation.kind} of ${shapeText(shape)} ${current.operation.dtype}`;
    const folded = tileGrid.foldX * tileGrid.foldY > 1 ? ` One cell is ${tileGrid.foldY} × ${tileGrid.foldX} elements.` : "";
    byId("tile-legend").textContent = `Filled: active. Struck through: masked off. Red, crossed: out of bounds.${shape.length < 2 ? " A row is a warp." : ""}${folded}`;
    const row = Math.floor(tileGrid.cursor / tileGrid.across) * tileGrid.foldY, column = (tileGrid.cursor % tileGrid.across) * tileGrid.foldX;
    const lane = row * columns + column;
    if (lane >= total) { byId("tile-details").textContent = ""; return; }
    const shift = current.array === -1 ? 0 : launch.arrays[current.array].start, address = current.distances[lane] + shift;
    const inArray = current.array === -1 ? arrayAt(launch, address) : current.array;
    const distance = inArray === -1 ? address : address - launch.arrays[inArray].start;
    const how = current.outside[lane] ? "out of bounds" : current.active[lane] ? "active" : "masked off";
    byId("tile-details").textContent = [
      `Element ${indexText(lane, shape) || "[]"}`, how, elementText(launch, inArray, distance, size), addressText(address),
      `sector ${Math.floor(address / 32) % 4} of its line`, `bank ${Math.floor(lane * size / BANK_BYTES) % BANKS} if row-major`,
    ].join(" · ");
  }

  function table(id, head, rows) {
    byId(id).replaceChildren(
      made("thead", {}, made("tr", {}, ...head.map((text) => made("th", { scope: "col" }, text)))),
      made("tbody", {}, ...rows),
    );
  }

  const cells = (texts) => texts.map((text) => made("td", {}, String(text)));

  function showTables() {
    const { launch } = state;
    table("operations", ["", "kind", "tile", "runs", "programs", "asked", "moved", "asked/moved", "sectors a warp", "lines a warp",
      "bank conflicts: rows", "columns", "again", "several", "masked off", "out of bounds", "line"], launch.operations.map((operation, at) => {
      const { numbers } = operation, { traffic } = numbers, warps = traffic.groups || 1;
      const row = made("tr", { "data-operation": at }, made("td", {}, made("button", { type: "button", onclick: () => toOperation(at) }, "Show")), ...cells([
        operation.kind, `${shapeText(operation.shape)} ${operation.dtype}`, numbers.executions, numbers.programs, bytesText(traffic.asked), bytesText(numbers.moved),
        numbers.moved ? `${(100 * traffic.asked / numbers.moved).toFixed(1)} %` : "–", (traffic.sectors / warps).toFixed(2), (traffic.lines / warps).toFixed(2),
        ...numbers.conflicts.map((degree) => `${degree}`), numbers.reuse.again, numbers.reuse.several, numbers.masked_off,
      ]));
      row.append(made("td", numbers.outside ? { class: "bad" } : {}, String(numbers.outside)), made("td", { class: "text" }, `${operation.file}:${operation.line} ${operation.text}`));
      row.querySelector("button").setAttribute("aria-label", `Show operation ${at + 1}, ${operation.kind} at line ${operation.line}`);
      return row;
    }));
    table("arrays", ["read", "written", "elements", "read at all", "read again", "read by several", "written at all", "written by several", "out of bounds", "array"],
      launch.arrays.map((array) => {
        const { numbers } = array, row = made("tr", {}, ...cells([bytesText(numbers.bytes_read), bytesText(numbers.bytes_written), array.elements, numbers.read.distinct, numbers.read.again,
          numbers.read.several, numbers.written.distinct, numbers.written.several]));
        row.append(made("td", numbers.outside ? { class: "bad" } : {}, String(numbers.outside)), made("td", { class: "text" }, `${array.name}: ${array.dtype} ${shapeText(array.shape)}`));
        return row;
      }));
    byId("outside").hidden = !launch.outside.length;
    table("outside-table", ["", "elements", "first: program", "tile index", "would be", "line"], launch.outside.map((found) => {
      const operation = launch.operations[found.operation];
      const what = found.element === null ? `address ${found.address}` : `element ${found.element} of ${found.array}, address ${found.address}`;
      const go = made("button", { type: "button", onclick: () => toOperation(found.operation, true) }, "Show");
      go.setAttribute("aria-label", `Show what is out of bounds at line ${operation.line}`);
      return made("tr", { class: "bad" }, made("td", {}, go), ...cells([found.count, programText(launch, found.program), `[${found.index.join(", ")}]`, what]),
        made("td", { class: "text" }, `${operation.file}:${operation.line} ${operation.text}`));
    }));
  }

  /** Go to the first step, in all programs, for which `fits`, or say that the page does not have it. */
  function goTo(fits, from = 0) {
    const { launch } = state, flat = launch.steps.flatMap((steps, program) => steps.map((at, step) => [launch.accesses[at], program, step]));
    for (let i = 0; i < flat.length; i++) {
      const [access, program, step] = flat[(from + i) % flat.length];
      if (fits(access)) {
        Object.assign(state, { program, step });
        showStep();
        return;
      }
    }
    byId("step-text").textContent = "this page has no such step";
  }

  function toOperation(at, outside = false) { goTo((access) => access[0] === at && (!outside || access[7] !== 0)); }

  function nextOutside() {
    const { launch } = state;
    let before = state.step + 1;
    for (let program = 0; program < state.program; program++) before += launch.steps[program].length;
    goTo((access) => access[7] !== 0, before);
  }

  function move(programs, steps) {
    const { launch } = state, program = state.program + programs;
    if (program < 0 || program >= launch.programs.length) return;
    state.program = program;
    state.step += steps;
    showStep();
  }

  byId("launch").addEventListener("change", (event) => showLaunch(Number(event.target.value)));
  byId("program").addEventListener("input", (event) => { state.program = Number(event.target.value); showStep(); });
  byId("step").addEventListener("input", (event) => { state.step = Number(event.target.value); showStep(); });
  byId("array").addEventListener("change", (event) => { state.array = Number(event.target.value); drawArray(); });
  byId("view").addEventListener("change", drawArray);
  byId("colour").addEventListener("change", drawArray);
  byId("outside-next").addEventListener("click", nextOutside);
  byId("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; draw(); });
  window.addEventListener("resize", draw);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|CANVAS)$/.test(event.target.tagName)) {
      if (event.key !== "o" || event.target.tagName === "SELECT") return;
    }
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "o") nextOutside();
    else if (!steps || event.target.closest(".wide")) return;
    else { event.preventDefault(); move(...steps); }
  });

  fillSelects();
  showLaunch(0);
  document.documentElement.dataset.ready = "1";
}

if (typeof document !== "undefined") start();
