// The page: one chosen algorithm, followed everywhere.

const data = JSON.parse(document.getElementById("data").textContent);
const LONG = 10; // rows of a table in an account; longer ones open on demand
let chosen = null; // a label, or nothing

/** Mark the chosen algorithm within an element, and dim the others. */
function highlight(root) {
  for (const element of root.querySelectorAll("[data-label]")) {
    const mine = element.dataset.label === chosen;
    if (element.matches("tr")) element.classList.toggle("chosen", mine);
    else if (element.matches("button")) element.setAttribute("aria-pressed", mine);
    else element.classList.toggle("dim", chosen !== null && !mine);
  }
  for (const phase of root.querySelectorAll("[data-phase]")) {
    phase.style.display = chosen === null || phase.dataset.phase === chosen ? "" : "none";
  }
}

function choose(label) {
  chosen = chosen === label ? null : label;
  highlight(document);
  for (const view of views) view.follow();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest(".pick");
  const row = event.target.closest("tr[data-label]");
  if (button) choose(button.dataset.label);
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

// -- one problem

class View {
  constructor(problem) {
    this.problem = problem;
    this.root = document.getElementById(problem.id);
    this.kind = ["weak", "strong", "realised"].find((kind) => this.drawable(kind).length);
    this.scale = "linear";
    this.controls();
    this.curves();
    this.dual();
    this.prices();
    this.policy();
    this.internals();
    this.root.querySelectorAll("table.sortable").forEach(sortable);
    this.downloads();
    this.root.querySelector(".copy").addEventListener("click", (event) => copy(event.target));
  }

  find(selector) { return this.root.querySelector(selector); }

  name(subject, kind) { return kind === "weak" ? subject : `${kind}_${subject}`; }

  /** The panels of a form that some algorithm can fill: the regret, every constraint, and without episodes the gaps. */
  drawable(kind) {
    const panels = [{ subject: "regret", n: 0 }, ...this.problem.constraints.map((_, n) => ({ subject: "violation", n })), { subject: "gaps_paid", n: 0 }, { subject: "certified_gap", n: 0 }];
    return panels.filter(({ subject, n }) => this.problem.groups.some((g) => g.curves[this.name(subject, kind)]?.[n]));
  }

  series(name, n) {
    return this.problem.groups.filter((g) => g.curves[name]?.[n]).map((g) => ({ label: g.label, look: g.look, ...g.curves[name][n] }));
  }

  controls() {
    for (const input of this.root.querySelectorAll(`input[name="${this.problem.id}-kind"]`)) {
      input.checked = input.value === this.kind;
      input.disabled = !this.drawable(input.value).length;
      input.addEventListener("change", () => { this.kind = input.value; this.curves(); });
    }
    for (const input of this.root.querySelectorAll(`input[name="${this.problem.id}-scale"]`))
      input.addEventListener("change", () => { this.scale = input.value; this.curves(); this.dual(); });
  }

  curves() {
    const phases = this.problem.groups.flatMap((g) => g.phases.slice(1).map((p) => ({ x: p.start, name: p.name, label: g.label })));
    const charts = this.kind === undefined ? [] : this.drawable(this.kind).map(({ subject, n }) => chart({
      title: `${this.kind === "weak" ? "" : `${this.kind} `}${subject.replace("_", " ")}${subject === "violation" ? ` of ${this.problem.constraints[n]}` : ""}`,
      x: this.problem.unit, xScale: this.scale, zero: true,
      yScale: this.scale === "linear" ? "linear" : subject !== "violation" && this.kind !== "realised" ? "log" : "symlog",
      series: this.series(this.name(subject, this.kind), n), upright: phases,
    }));
    this.find('[data-charts="curves"]').replaceChildren(...charts);
  }

  dual() {
    const charts = this.problem.constraints.map((constraint, n) => ({ constraint, n, series: this.series("multiplier", n) }))
      .filter(({ series }) => series.length).map(({ constraint, n, series }) => chart({
        title: `price of ${constraint}`, x: this.problem.unit, xScale: this.scale, yScale: "linear", zero: true, series,
        across: this.problem.prices ? [{ y: this.problem.prices[n], name: "exact" }] : [],
      }));
    this.find('[data-part="dual"]').hidden = !charts.length;
    this.find('[data-charts="dual"]').replaceChildren(...charts);
  }

  prices() {
    const look = (label) => this.problem.groups.find((g) => g.label === label).look;
    const charts = this.problem.tradeoffs.map((t) => chart({
      title: `best value against the bound on ${t.name}`, x: t.name, xScale: "linear", yScale: "linear",
      series: [{ label: "optimum", fixed: true, look: 6, episode: t.bounds, mean: t.values }],
      dots: t.points.map((p) => ({ label: p.label, look: look(p.label), at: p.at })),
      upright: [{ x: t.bound, name: "the bound" }],
    }));
    this.find('[data-part="price"]').hidden = !charts.length;
    this.find('[data-charts="price"]').replaceChildren(...charts);
  }

  policy() {
    const shown = this.problem.groups.filter((g) => g.runs.some((r) => r.policy));
    this.find('[data-part="policy"]').hidden = !shown.length;
    if (!shown.length) return;
    const [label, seed, step] = ["label", "seed", "step"].map((name) => this.find(`[data-control="${name}"]`));
    label.replaceChildren(...shown.map((g) => make("option", { value: g.label }, g.label)));
    const group = () => shown.find((g) => g.label === label.value);
    const seeds = () => seed.replaceChildren(...group().runs.filter((r) => r.policy).map((r) => make("option", { value: r.key }, r.seed)));
    this.drawPolicy = () => {
      const run = group().runs.find((r) => r.key === seed.value), h = step.value - 1;
      step.max = run.policy.length;
      this.find(".slider").hidden = this.problem.stationary;
      this.find(".slider output").textContent = step.value;
      this.find('[data-policy="summary"]').textContent = drawsInWords(this.problem, run);
      this.find('[data-policy="board"]').replaceChildren(policyView(this.problem, run, h));
    };
    this.followPolicy = () => {
      if (shown.some((g) => g.label === chosen)) label.value = chosen;
      seeds();
      this.drawPolicy();
    };
    label.addEventListener("change", () => { seeds(); this.drawPolicy(); });
    seed.addEventListener("change", this.drawPolicy);
    step.addEventListener("input", this.drawPolicy);
    this.followPolicy();
  }

  internals() {
    const group = this.problem.groups.find((g) => g.label === chosen) ?? this.problem.groups[0];
    const parts = [make("p", { class: "quiet" }, `${group.label}, seed ${group.seed}`)];
    if (group.phases.length) parts.push(timeline(group, this.problem.unit));
    parts.push(...group.notes.map((note) => make("p", { class: "note" }, note)));
    parts.push(group.explanation.entries.length ? tree(group.explanation) : make("p", {}, "It keeps no account of its own."));
    this.find("[data-internals]").replaceChildren(...parts);
  }

  follow() {
    this.followPolicy?.();
    this.internals();
  }

  downloads() {
    for (const row of this.root.querySelectorAll(".ledger tr[data-key]")) {
      const run = this.problem.groups.flatMap((g) => g.runs).find((r) => r.key === row.dataset.key);
      if (!run.policy) continue;
      const files = { json: ["application/json", policyJson], csv: ["text/csv", policyCsv] };
      row.querySelector(".downloads").append(...Object.entries(files).map(([suffix, [type, text]]) => {
        const button = make("button", { type: "button", "data-file": suffix, "aria-label": `policy of ${run.key} as ${suffix}` }, suffix);
        button.addEventListener("click", () => save(`${run.key}.${suffix}`, type, text(this.problem, run)));
        return button;
      }));
    }
  }
}

/** The phases as a bar, as long as they took. */
function timeline(group, unit) {
  const bar = make("div", { class: "phases", role: "img", "aria-label": group.phases.map((p) => `${p.name} from ${unit} ${p.start + 1}`).join(", ") });
  group.phases.forEach((phase, i) => {
    const end = group.phases[i + 1]?.start ?? group.episodes;
    const part = make("span", { title: `${phase.name}: ${unit}s ${(phase.start + 1).toLocaleString("en")} to ${end.toLocaleString("en")}` }, phase.name);
    part.style.flex = `${Math.max(end - phase.start, group.episodes / 100)} 1 0`;
    bar.append(part);
  });
  return bar;
}

/** Nested values: tables for lists of alike entries, definition lists for the rest. */
function tree(value) {
  if (typeof value === "string") return make("span", {}, value);
  if (!Array.isArray(value)) return make("dl", { class: "tree" }, ...value.entries.flatMap(([key, inner]) => [make("dt", {}, key), make("dd", {}, tree(inner))]));
  if (value.every((v) => typeof v === "string")) return make("span", {}, value.join(", ") || "none");
  const keys = (v) => (typeof v === "string" || Array.isArray(v) ? null : v.entries.map(([key]) => key));
  const columns = keys(value[0]);
  if (columns?.length && value.every((v) => String(keys(v)) === String(columns))) {
    const head = make("tr", {}, ...columns.map((key) => make("th", { scope: "col" }, key)));
    const rows = value.map((v) => make("tr", {}, ...v.entries.map(([, inner]) => make("td", {}, tree(inner)))));
    const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
    return rows.length <= LONG ? table : make("details", {}, make("summary", {}, `${rows.length} entries`), table);
  }
  return make("div", {}, ...value.map((inner) => make("div", {}, tree(inner))));
}

function save(name, type, text) {
  const link = make("a", { download: name, href: `data:${type};charset=utf-8,${encodeURIComponent(text)}` });
  link.click();
}

async function copy(button) {
  const text = button.parentElement.querySelector("pre").textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
  catch { getSelection().selectAllChildren(button.parentElement.querySelector("pre")); button.textContent = "selected: press Ctrl+C"; }
}

const views = data.problems.map((problem) => new View(problem));
