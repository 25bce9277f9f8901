// A policy as a board or a table.

const MOST_ROWS = 60;

/** The actions of a decision as [action, probability] pairs. */
const taken = (choice) => (Array.isArray(choice) ? choice : [[choice, 1]]);

/** Whether chance decides: more than rounding is left to a second action. */
const drawn = (choice) => taken(choice).filter(([, p]) => p > 1e-12).length > 1;

/** What one step of a run's policy looks like. */
function policyView(problem, run, h) {
  const reached = (s) => run.reach === null || run.reach[h][s] === "1";
  const step = run.policy[h];
  return problem.grid ? board(problem, step, reached) : decisionTable(problem, step, reached);
}

/** The part of a page that shows a policy step by step; returns what makes it follow the chosen line. */
function policyPart(root, problem) {
  const find = (selector) => root.querySelector(selector), shown = problem.groups.filter((g) => g.runs.some((r) => r.policy));
  find('[data-part="policy"]').hidden = !shown.length;
  if (!shown.length) return () => {};
  const [label, seed, step] = ["label", "seed", "step"].map((name) => find(`[data-control="${name}"]`));
  label.replaceChildren(...shown.map((g) => make("option", { value: g.label }, g.label)));
  seed.closest("label").hidden = shown.every((g) => g.runs.length === 1 && g.runs[0].seed === "");
  const group = () => shown.find((g) => g.label === label.value);
  const seeds = () => seed.replaceChildren(...group().runs.filter((r) => r.policy).map((r) => make("option", { value: r.key }, r.seed)));
  const draw = () => {
    const run = group().runs.find((r) => r.key === seed.value), h = step.value - 1;
    step.max = run.policy.length;
    find(".slider").hidden = problem.stationary;
    find(".slider output").textContent = step.value;
    find('[data-policy="summary"]').textContent = drawsInWords(problem, run);
    find('[data-policy="board"]').replaceChildren(policyView(problem, run, h));
  };
  const follow = () => {
    if (shown.some((g) => g.label === chosen)) label.value = chosen;
    seeds();
    draw();
  };
  label.addEventListener("change", () => { seeds(); draw(); });
  seed.addEventListener("change", draw);
  step.addEventListener("input", draw);
  follow();
  return follow;
}

function board(problem, step, reached) {
  const { rows, columns, cells, marks, arrows } = problem.grid;
  const element = make("div", { class: "board", role: "img" });
  element.style.gridTemplateColumns = `repeat(${columns}, auto)`;
  const at = new Map(cells.map(([row, column], s) => [row * columns + column, s]));
  const words = [];
  for (let place = 0; place < rows * columns; place++) {
    const s = at.get(place);
    if (s === undefined) { element.append(make("div", { class: "cell none" })); continue; }
    const odds = taken(step[s]).filter(([, p]) => p > 1e-12), open = reached(s), chance = odds.length > 1 && open;
    const cell = make("div", { class: `cell${open ? "" : " never"}${chance ? " chance" : ""}`, "data-state": problem.states[s] });
    if (marks[s]) cell.append(make("span", { class: "mark" }, marks[s]));
    if (open) {
      const likely = [...odds].sort((a, b) => b[1] - a[1]).slice(0, 2);
      cell.append(make("span", {}, likely.map(([a]) => arrows[a]).join("")));
      if (chance) cell.append(make("small", {}, percent(likely[0][1])));
      cell.title = `${problem.states[s]}: ${inWords(problem, step[s])}`;
      words.push(cell.title);
    }
    element.append(cell);
  }
  element.setAttribute("aria-label", words.join("; "));
  return element;
}

function decisionTable(problem, step, reached) {
  const order = step.map((_, s) => s).sort((a, b) => reached(b) - reached(a) || drawn(step[b]) - drawn(step[a]) || a - b);
  const body = make("tbody");
  for (const s of order.slice(0, MOST_ROWS)) {
    const open = reached(s), row = make("tr", { class: open ? (drawn(step[s]) ? "chance" : "") : "never", "data-state": problem.states[s] });
    row.append(make("th", { scope: "row" }, problem.states[s]));
    const odds = new Map(taken(step[s]));
    problem.actions.forEach((_, a) => {
      const p = odds.get(a) ?? 0, fill = make("i");
      fill.style.width = `${100 * p}%`;
      row.append(make("td", { class: "bar" }, ...(p > 1e-12 ? [fill, percent(p)] : [])));
    });
    body.append(row);
  }
  const head = make("tr", {}, make("th", { scope: "col" }, "state"), ...problem.actions.map((a) => make("th", { scope: "col" }, a)));
  const more = order.length - MOST_ROWS;
  return make("div", {}, make("table", {}, make("thead", {}, head), body),
    ...(more > 0 ? [make("p", { class: "quiet" }, `${more.toLocaleString("en")} more states are not shown.`)] : []));
}

function inWords(problem, choice) {
  return taken(choice).filter(([, p]) => p > 1e-12).map(([a, p]) => (p === 1 ? called(problem, 1, a) : `${percent(p)} ${called(problem, 1, a)}`)).join(", ");
}

/** A state (0) or an action (1) as a sentence needs it: a number is not a name. */
function called(problem, which, i) {
  const name = (which === 0 ? problem.states : problem.actions)[i];
  return problem.numbered[which] ? `${which === 0 ? "state" : "action"} ${name}` : name;
}

/** Where the policy draws, in words. */
function drawsInWords(problem, run) {
  const found = run.policy.flatMap((step, h) => step.map((choice, s) => ({ choice, h, s })))
    .filter(({ choice, h, s }) => drawn(choice) && (run.reach === null || run.reach[h][s] === "1"));
  if (!found.length) return "The policy is deterministic wherever it goes.";
  const listed = found.slice(0, 4).map(({ choice, h, s }) => `${problem.stationary ? "" : `step ${h + 1}, `}${called(problem, 0, s)}: ${inWords(problem, choice)}`);
  const rest = found.length > 4 ? ` and ${found.length - 4} more` : "";
  return `It randomises at ${found.length === 1 ? "one place" : `${found.length} places`}: ${listed.join("; ")}${rest}.`;
}
