"use strict";

// Keeps the list of jobs live: state and progress of known rows change in place; a job that is not in the
// list yet makes the page load again, once.
const rows = document.getElementById("jobs");

function show(row, job) {
  const pill = row.querySelector("[data-cell=state] .pill");
  pill.textContent = job.state;
  pill.className = "pill " + job.state;
  const bar = row.querySelector("progress");
  bar.max = Math.max(job.total, 1);
  bar.value = Math.min(job.screened, bar.max);
  row.querySelector(".count").textContent = `${job.trials} trials`;
}

const stream = new EventSource("/live/jobs");
stream.addEventListener("job", (message) => {
  const job = JSON.parse(message.data);
  const row = rows && rows.querySelector(`[data-job="${job.id}"]`);
  if (row) {
    show(row, job);
  } else {
    stream.close();
    location.reload();
  }
});
window.addEventListener("pagehide", () => stream.close());
