// What all pages share: light and dark, tables to sort and to take away, one chosen line that is followed everywhere.

const data = JSON.parse(document.getElementById("data").textContent);
let chosen = null; // a label, or nothing
let views = []; // parts of the page that follow the chosen line

/** Mark the chosen line within an element, and dim the others. */
function highlight(root) {
  for (const element of root.querySelectorAll("[data-label]")) {
    const mine = element.dataset.label === chosen;
    if (element.matches("tr")) element.classList.toggle("chosen", mine);
    else if (element.matches(".pick")) element.setAttribute("aria-pressed", mine);
    else if (!element.matches("button")) element.classList.toggle("dim", chosen !== null && !mine);
  }
}

function choose(label) {
  chosen = chosen === label ? null : label;
  redraw();
  highlight(document);
  for (const view of views) view.follow();
}

/** Draw all charts again: which lines are visible has changed. */
function redraw() {
  for (const figure of charts) if (figure.isConnected) figure.redraw(); else charts.delete(figure);
  for (const button of document.querySelectorAll(".show")) button.setAttribute("aria-pressed", !hidden.has(button.dataset.label));
}

/** Hide or show a line everywhere; alone: hide all others, or show all again. */
function toggle(label, alone) {
  const labels = [...new Set([...document.querySelectorAll(".show")].map((button) => button.dataset.label))];
  const others = labels.filter((x) => x !== label), single = !hidden.has(label) && others.every((x) => hidden.has(x));
  if (alone) { hidden.clear(); if (!single) others.forEach((x) => hidden.add(x)); }
  else if (!hidden.delete(label)) hidden.add(label);
  redraw();
}

document.addEventListener("click", (event) => {
  const [button, legend, row] = [".pick", ".show", "tr[data-label]"].map((selector) => event.target.closest(selector));
  if (button) choose(button.dataset.label);
  else if (legend) toggle(legend.dataset.label, event.shiftKey);
  else if (row && !event.target.closest("button, a")) choose(row.dataset.label);
});

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});

// -- tables

function sortable(table) {
  const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector(".sort")?.addEventListener("click", () => {
    const down = heading.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.cells[column].dataset.value;
    const numeric = heading.classList.contains("num");
    const order = (a, b) => (numeric ? a - b : a.localeCompare(b));
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // what is missing comes last, always
      return down ? order(y, x) : order(x, y);
    });
    headings.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  }));
}

document.querySelectorAll("table.sortable").forEach(sortable);

/** Buttons under a table that give it as a file: LaTeX, Markdown, CSV. */
for (const place of document.querySelectorAll("[data-table]")) {
  const { name, files } = data.tables[place.dataset.table];
  for (const [kind, suffix, type] of [["LaTeX", "tex", "text/x-tex"], ["Markdown", "md", "text/markdown"], ["CSV", "csv", "text/csv"]]) {
    const button = make("button", { type: "button", "data-file": kind, "aria-label": `${name} as ${kind}` }, kind);
    button.addEventListener("click", () => save(`${name.replace(/[^\w.-]+/g, "-")}.${suffix}`, type, files[suffix]));
    place.append(button);
  }
}

async function copy(button) {
  const text = button.parentElement.querySelector("pre").textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
  catch { getSelection().selectAllChildren(button.parentElement.querySelector("pre")); button.textContent = "selected: press Ctrl+C"; }
}
document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", () => copy(button)));
