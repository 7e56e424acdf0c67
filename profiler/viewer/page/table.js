"use strict";
// The table: a row for each name, sorted by a click on a column's head.

const ROWS = 500; // more would be slow, and nobody reads them

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

class NameTable {
  constructor(section, tree) {
    Object.assign(this, { section, tree, column: null, descending: true });
  }

  show(metric, query) {
    this.metric = metric;
    const columns = metric.sums ? ["own", "total"] : ["value"];
    if (!["name", "frames", ...columns].includes(this.column)) this.column = columns[0];
    const test = matcher(query) ?? (() => true);
    const rows = rowsByName(this.tree, metric).filter((row) => test(row.name));
    const sorted = sortRows(rows, this.column, this.descending);
    const whole = metric.sums && !this.tree.difference ? metric.total[0] : null;
    const head = element("tr", {}, ...[...columns, "frames", "name"].map((column) => this.head(column, query)));
    const body = sorted.slice(0, ROWS).map((row) => this.row(row, columns, whole));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
    this.section.replaceChildren(table);
    if (sorted.length > ROWS) this.section.append(element("p", {}, `and ${sorted.length - ROWS} more names: search for some`));
  }

  head(column, query) {
    const title = { own: "self", total: "total", value: "value", frames: "frames", name: "name" }[column];
    const sorted = column === this.column;
    const arrow = sorted ? (this.descending ? " ▼" : " ▲") : "";
    const unit = column in { own: 1, total: 1, value: 1 } ? ` ${this.metric.label}` : "";
    const press = () => {
      this.descending = sorted ? !this.descending : column !== "name";
      this.column = column;
      this.show(this.metric, query);
      this.section.querySelector(`[data-column="${column}"]`).focus();
    };
    const button = element("button", { type: "button", "data-column": column, onclick: press }, title + unit + arrow);
    return element("th", { scope: "col", "aria-sort": sorted ? (this.descending ? "descending" : "ascending") : "none" }, button);
  }

  row(row, columns, whole) {
    const cells = columns.map((column) => {
      const value = row[column];
      const share = whole && value !== null ? ` (${percent(value / whole)})` : "";
      const text = value === null ? "–" : readable(value, this.metric.unit, this.tree.difference) + share;
      const tone = this.tree.difference && value ? (value > 0 ? "more" : "less") : "";
      return element("td", { className: tone }, text);
    });
    return element("tr", {}, ...cells, element("td", {}, String(row.frames)), element("td", {}, row.name));
  }
}
