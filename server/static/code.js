"use strict";

// The stages of a kernel side by side: a click on a line marks all lines that come from the same line of the source.
const stages = document.querySelectorAll(".stages pre");

function choose(line, from) {
  for (const row of document.querySelectorAll(".stages .on")) row.classList.remove("on");
  for (const stage of stages) {
    const rows = stage.querySelectorAll(`[data-line="${line}"]`);
    rows.forEach((row) => row.classList.add("on"));
    if (rows.length && stage !== from) stage.scrollTop = rows[0].offsetTop - stage.offsetTop - stage.clientHeight / 3;
  }
}

for (const stage of stages) {
  stage.addEventListener("click", (event) => {
    const row = event.target.closest("[data-line]");
    if (row) choose(row.dataset.line, stage);
  });
}
