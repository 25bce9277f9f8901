// The page of a plan: plans against the bounds, prices, single episodes, policies.

const place = (part, drawn) => {
  const section = document.querySelector(`[data-part="${part}"]`);
  if (section) section.hidden = !drawn.length;
  document.querySelector(`[data-charts="${part}"]`)?.replaceChildren(...drawn);
};

const rowsOf = (value) => data.plans.map((p) => ({ label: p.label, look: p.look, value: value(p) }));
place("plans", [
  bars({ title: "value", x: "expected reward", rows: rowsOf((p) => p.value) }),
  ...data.bounds.map((b, n) => bars({ title: b.text, x: `expected ${b.name}`, rows: rowsOf((p) => p.totals[n]), bound: { value: b.total, name: `the bound ${short(b.total, 5)}` } })),
]);
place("price", data.tradeoffs.map((t) => tradeoffChart(t, t.points)));
place("spreads", data.spreads.map((s) => chart({
  title: `${s.name} of single episodes`, x: s.name, xScale: "linear", yScale: "linear", zero: true, series: s.series,
  upright: s.bound === null ? [] : [{ x: s.bound, name: "the bound on the mean" }],
})));
views = [{ follow: policyPart(document, data.problem) }];
