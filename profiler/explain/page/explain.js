"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
let chosen = null;

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function showFacts() {
  document.getElementById("variant").textContent = data.variant;
  for (const [name, value] of data.facts) {
    const pair = element("div", undefined, document.getElementById("facts"));
    element("dt", name, pair);
    element("dd", value, pair);
  }
  const most = Math.max(1, ...data.mix.map(([, count]) => count));
  for (const [kind, count] of data.mix) {
    const bar = element("span", `${kind} ${count}`, document.getElementById("mix"));
    bar.style.setProperty("--size", `${(count / most) * 80}px`);
  }
}

function showStage(stage) {
  const section = element("section", undefined, document.getElementById("stages"));
  section.id = `stage-${stage.name}`;
  element("h2", stage.title, section);
  const code = element("div", undefined, section);
  code.className = "code";
  code.tabIndex = 0;
  stage.lines.forEach(([text, line], at) => {
    const row = element("div", undefined, code);
    const number = element("span", stage.name === "source" ? line : at + 1, row);
    number.className = "number";
    row.append(text);
    if (line !== null) row.dataset.line = line;
  });
  const button = element("button", stage.title, document.getElementById("panes"));
  button.type = "button";
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    section.hidden = !section.hidden;
    button.setAttribute("aria-pressed", String(!section.hidden));
  });
}

/** Mark everything that comes from a line, and bring its first part into view in the other panes. */
function choose(line, from) {
  chosen = line;
  for (const row of document.querySelectorAll(".code div.on")) row.classList.remove("on");
  for (const code of document.querySelectorAll(".code")) {
    const rows = code.querySelectorAll(`div[data-line="${line}"]`);
    rows.forEach((row) => row.classList.add("on"));
    if (rows.length && code !== from) {
      code.scrollTop = rows[0].offsetTop - code.offsetTop - code.clientHeight / 3;
    }
  }
  history.replaceState(null, "", `#L${line}`);
}

function step(code, by) {
  const rows = [...code.querySelectorAll("div[data-line]")];
  const now = rows.findIndex((row) => row.dataset.line === String(chosen));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
  if (next) {
    choose(next.dataset.line, null);
    next.scrollIntoView({ block: "nearest" });
  }
}

showFacts();
data.stages.forEach(showStage);
document.getElementById("stages").addEventListener("click", (event) => {
  const row = event.target.closest("div[data-line]");
  if (row) choose(row.dataset.line, row.parentElement);
});
document.getElementById("stages").addEventListener("keydown", (event) => {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) {
    event.preventDefault();
    step(event.target.closest(".code"), by);
  }
});
const asked = /^#L(\d+)$/.exec(location.hash);
if (asked) choose(asked[1], null);
