// Line charts as SVG: bands, lines, dots, a cursor that pointer and arrow keys move.

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 250, MARGIN = { left: 58, right: 12, top: 10, bottom: 34 };

/** An element with attributes and children; texts are texts, never markup. */
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "g", "circle", "rect", "title"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/**
 * A chart that redraws itself at the width it is given.
 * spec: { title, x, y: axis titles, xScale, yScale, series: [{label, look, episode, mean, low?, high?, fixed?}],
 *         dots: [{label, look, at: [[x, y]]}], across: [{y, name}], upright: [{x, name, label?}] }
 */
function chart(spec) {
  const svg = make("svg", { height: HEIGHT, tabindex: 0, role: "img", "aria-label": `${spec.title}, arrow keys read it out` });
  const readout = make("div", { class: "readout", "aria-live": "polite" });
  const figure = make("figure", {}, make("figcaption", {}, spec.title), svg, readout);
  let cursor = null;

  function draw() {
    const width = figure.clientWidth;
    if (!width) return;
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.replaceChildren();
    const [x, y] = axes(spec);
    const px = (v) => MARGIN.left + x.at(v) * (width - MARGIN.left - MARGIN.right);
    const py = (v) => HEIGHT - MARGIN.bottom - y.at(v) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    drawAxes(svg, spec, x, y, px, py, width);
    drawMarks(svg, spec, x, px, py, width);
    for (const s of spec.series) drawSeries(svg, s, spec, px, py);
    for (const d of spec.dots ?? []) for (const [u, v] of d.at)
      svg.append(make("circle", { class: `dot look-${d.look % 7}`, "data-label": d.label, cx: px(u), cy: py(v), r: 4 }));
    drawCursor(px);
    highlight(svg);
  }

  function drawCursor(px) {
    readout.replaceChildren();
    if (cursor === null || !spec.series.length) return;
    const k = grid()[cursor];
    svg.append(make("line", { class: "cursor", x1: px(k), x2: px(k), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    readout.append(make("span", {}, `${spec.x} ${k.toLocaleString("en")}`));
    for (const s of spec.series) {
      const i = nearest(s.episode, k), band = s.low ? ` [${short(s.low[i])}, ${short(s.high[i])}]` : "";
      readout.append(make("span", {}, make("b", { class: `look-${s.look % 7}` }, s.label), ` ${short(s.mean[i])}${band}`));
    }
  }

  const grid = () => spec.series.reduce((a, s) => (s.episode.length > a.length ? s.episode : a), []);
  const move = (to) => { cursor = Math.max(0, Math.min(grid().length - 1, to)); draw(); };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), [x] = axes(spec);
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const gaps = grid().map((k) => Math.abs(x.at(k) - share));
    if (gaps.length) move(gaps.indexOf(Math.min(...gaps)));
  });
  svg.addEventListener("pointerleave", () => { cursor = null; draw(); });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    move((cursor ?? grid().length - 1) + step);
  });
  new ResizeObserver(draw).observe(figure);
  return figure;
}

function nearest(sorted, x) {
  let best = 0;
  sorted.forEach((v, i) => { if (Math.abs(v - x) < Math.abs(sorted[best] - x)) best = i; });
  return best;
}

/** The two scales: room for everything drawn, and 0 on a linear or symlog axis of totals. */
function axes(spec) {
  const xs = [...spec.series.flatMap((s) => s.episode), ...(spec.dots ?? []).flatMap((d) => d.at.map((p) => p[0]))];
  let ys = [
    ...spec.series.flatMap((s) => [...s.mean, ...(s.low ?? []), ...(s.high ?? [])]),
    ...(spec.dots ?? []).flatMap((d) => d.at.map((p) => p[1])),
    ...(spec.across ?? []).map((a) => a.y),
  ];
  const top = Math.max(...ys.map(Math.abs), 0), threshold = top / 1e3 || 1;
  if (spec.yScale === "log") ys = ys.filter((y) => y > 0);
  else if (spec.zero) ys.push(0);
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const room = spec.yScale === "linear" ? (high - low) * 0.04 : 0;
  return [
    makeScale(spec.xScale, Math.min(...xs), Math.max(...xs)),
    makeScale(spec.yScale, low - (spec.zero && low === 0 ? 0 : room), high + room, threshold),
  ];
}

function drawAxes(svg, spec, x, y, px, py, width) {
  const bottom = HEIGHT - MARGIN.bottom, right = width - MARGIN.right;
  for (const t of y.ticks) {
    svg.append(make("line", { class: t === 0 ? "axis-line" : "grid-line", x1: MARGIN.left, x2: right, y1: py(t), y2: py(t) }));
    svg.append(make("text", { x: MARGIN.left - 7, y: py(t) + 4, "text-anchor": "end" }, short(t)));
  }
  const most = Math.max(2, Math.floor((width - MARGIN.left) / 62)), every = Math.ceil(x.ticks.length / most);
  x.ticks.forEach((t, i) => {
    svg.append(make("line", { class: "grid-line", x1: px(t), x2: px(t), y1: MARGIN.top, y2: bottom }));
    if (i % every === 0) svg.append(make("text", { x: px(t), y: bottom + 15, "text-anchor": "middle" }, short(t)));
  });
  svg.append(make("line", { class: "axis-line", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }));
  svg.append(make("text", { x: (MARGIN.left + right) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, spec.x));
}

function drawMarks(svg, spec, x, px, py, width) {
  for (const { y, name } of spec.across ?? []) {
    svg.append(make("line", { class: "exact", x1: MARGIN.left, x2: width - MARGIN.right, y1: py(y), y2: py(y) }));
    svg.append(make("text", { x: MARGIN.left + 5, y: py(y) - 5 }, `${name} ${short(y)}`));
  }
  for (const { x: at, name, label } of spec.upright ?? []) {
    if (at <= x.low || at >= x.high) continue;
    const mark = make("g", label === undefined ? {} : { "data-phase": label });
    mark.append(make("line", { class: "phase", x1: px(at), x2: px(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    const beside = px(at) + (px(at) < MARGIN.left + 16 ? 12 : -4), above = HEIGHT - MARGIN.bottom - 5;
    mark.append(make("text", { x: beside, y: above, transform: `rotate(-90 ${beside} ${above})` }, name));
    svg.append(mark);
  }
}

function drawSeries(svg, s, spec, px, py) {
  const visible = s.episode.map((_, i) => i).filter((i) => spec.yScale !== "log" || s.mean[i] > 0);
  if (!visible.length) return;
  const point = (i, y) => `${px(s.episode[i]).toFixed(1)},${py(y).toFixed(1)}`;
  const floor = (y) => (spec.yScale === "log" ? Math.max(y, axes(spec)[1].low) : y);
  if (s.low) {
    const low = visible.map((i) => point(i, floor(s.low[i]))), high = visible.map((i) => point(i, floor(s.high[i])));
    svg.append(make("path", { class: `band look-${s.look % 7}`, "data-label": s.fixed ? undefined : s.label, d: `M${low.join("L")}L${high.reverse().join("L")}Z` }));
  }
  const line = make("path", { class: `line look-${s.look % 7}`, "data-label": s.fixed ? undefined : s.label, d: `M${visible.map((i) => point(i, s.mean[i])).join("L")}` });
  if (s.look >= 7) line.setAttribute("stroke-dasharray", "7 4");
  svg.append(line);
}
