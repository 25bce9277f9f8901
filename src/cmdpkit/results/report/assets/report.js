// The page of a study: curves, multipliers, prices, policies and accounts of every problem.

const MOST_OPENING = 6; // problems whose regret is drawn at the beginning of the page
const LONG = 10; // rows of a table in an account; longer ones open on demand

class View {
  constructor(problem) {
    this.problem = problem;
    this.root = document.getElementById(problem.id);
    this.kind = ["weak", "strong", "realised"].find((kind) => this.drawable(kind).length);
    this.scale = "auto";
    this.seeds = false;
    this.controls();
    this.curves();
    this.dual();
    this.prices();
    this.followPolicy = policyPart(this.root, this.problem);
    this.internals();
  }

  find(selector) { return this.root.querySelector(selector); }

  name(subject, kind) { return kind === "weak" ? subject : `${kind}_${subject}`; }

  /** The panels of a form that some algorithm can fill: the regret, every constraint, and without episodes the gaps. */
  drawable(kind) {
    const panels = [{ subject: "regret", n: 0 }, ...this.problem.constraints.map((_, n) => ({ subject: "violation", n })), { subject: "gaps_paid", n: 0 }, { subject: "certified_gap", n: 0 }];
    return panels.filter(({ subject, n }) => this.problem.groups.some((g) => g.curves[this.name(subject, kind)]?.[n]));
  }

  series(name, n) {
    return this.problem.groups.filter((g) => g.curves[name]?.[n]).map((g) => ({ label: g.label, look: g.look, x: g.at, phases: g.phases, end: g.episodes, ...g.curves[name][n] }));
  }

  controls() {
    for (const input of this.root.querySelectorAll(`input[name="${this.problem.id}-kind"]`)) {
      input.checked = input.value === this.kind;
      input.disabled = !this.drawable(input.value).length;
      input.addEventListener("change", () => { this.kind = input.value; this.curves(); });
    }
    for (const input of this.root.querySelectorAll(`input[name="${this.problem.id}-scale"]`))
      input.addEventListener("change", () => { this.scale = input.value; this.curves(); this.dual(); });
    const seeds = this.find('[data-control="seeds"]');
    seeds.closest("label").hidden = !this.problem.groups.some((g) => Object.values(g.curves).some((rows) => rows.some((row) => row.raw)));
    seeds.addEventListener("change", () => { this.seeds = seeds.checked; this.curves(); this.dual(); });
  }

  /** The scales of a chart of totals, or of prices. A gap that falls over powers of ten asks for logarithms. */
  scales(positive, falls = false) {
    if (falls && this.scale === "auto") return { ...this.scales(true), xScale: "log", yScale: "log" };
    const upright = { auto: "auto", linear: "linear", symlog: "symlog", log: positive ? "log" : "symlog" }[this.scale];
    return { x: this.problem.unit, xScale: this.scale === "log" ? "log" : "linear", yScale: upright, zero: true, seeds: this.seeds };
  }

  curves() {
    const words = (subject, n) => `${this.kind === "weak" ? "" : `${this.kind} `}${subject.replace("_", " ")}${subject === "violation" ? ` of ${this.problem.constraints[n]}` : ""}`;
    const drawn = this.kind === undefined ? [] : this.drawable(this.kind).map(({ subject, n }) => chart({
      title: words(subject, n), ...this.scales(subject !== "violation" && this.kind !== "realised", subject === "certified_gap"), series: this.series(this.name(subject, this.kind), n),
    }));
    this.find('[data-charts="curves"]').replaceChildren(...drawn);
  }

  dual() {
    const drawn = this.problem.constraints.map((constraint, n) => ({ constraint, n, series: this.series("multiplier", n) }))
      .filter(({ series }) => series.length).map(({ constraint, n, series }) => chart({
        title: `price of ${constraint}`, ...this.scales(false), series,
        across: this.problem.prices ? [{ y: this.problem.prices[n], name: "exact" }] : [],
      }));
    this.find('[data-part="dual"]').hidden = !drawn.length;
    this.find('[data-charts="dual"]').replaceChildren(...drawn);
  }

  prices() {
    const look = (label) => this.problem.groups.find((g) => g.label === label).look;
    const drawn = this.problem.tradeoffs.map((t) => tradeoffChart(t, t.points.map((p) => ({ ...p, look: look(p.label) }))));
    this.find('[data-part="price"]').hidden = !drawn.length;
    this.find('[data-charts="price"]').replaceChildren(...drawn);
  }

  internals() {
    const group = this.problem.groups.find((g) => g.label === chosen) ?? this.problem.groups[0];
    const parts = [make("p", { class: "quiet" }, `${group.label}, seed ${group.seed}`)];
    if (group.phases.length > 1) parts.push(make("p", {}, `Phases: ${group.phases.map((p) => `${p.name} from ${this.problem.unit} ${(p.start + 1).toLocaleString("en")}`).join(", ")}.`));
    parts.push(...group.notes.map((note) => make("p", { class: "note" }, note)));
    parts.push(group.internals.entries.length ? tree(group.internals) : make("p", {}, "It has no internals to show."));
    this.find("[data-internals]").replaceChildren(...parts);
  }

  follow() {
    this.followPolicy();
    this.internals();
  }
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

views = data.problems.map((problem) => new View(problem));
document.querySelector('[data-charts="opening"]')?.replaceChildren(...views.filter((view) => view.kind !== undefined).slice(0, MOST_OPENING).map((view) => {
  const { subject, n } = view.drawable(view.kind)[0], name = view.name(subject, view.kind);
  return chart({ title: `${name.replaceAll("_", " ")} on ${view.problem.name}`, ...view.scales(false), series: view.series(name, n) });
}));
