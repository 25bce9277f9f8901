// Charts as SVG: lines with bands, dots and strips of phases that one can read out, zoom, refit and take away; and bars.

const SVG = "http://www.w3.org/2000/svg";
const PLOT = 210, MARGIN = { left: 58, right: 14, top: 8, bottom: 36 };
const STRIP = 15, MOST_STRIPS = 4; // height of a strip of phases, and how many are shown at once
const BAR = 24, LETTER = 6.2; // height of a bar; width of a letter on an axis
const charts = new Set(); // all that are on the page, to draw them again when algorithms are hidden
const hidden = new Set(); // labels of algorithms that are not drawn

/** An element with attributes and children; texts are texts, never markup. */
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "g", "circle", "rect", "title"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const lookOf = (look) => `look-${look % 7}`;

/** The frame of a chart: caption, tools, a drawing that follows the width. paint(svg, width) returns the height. */
function framed(title, paint, csv, legend) {
  const svg = make("svg", { role: "img", "aria-label": title });
  const tip = make("div", { class: "tip", "aria-live": "polite" });
  const tools = make("span", { class: "tools" });
  const figure = make("figure", {}, make("figcaption", {}, make("span", {}, title), make("small"), tools), make("div", { class: "plot" }, svg, tip));
  const draw = () => {
    const width = figure.clientWidth;
    if (!width) return;
    svg.replaceChildren();
    const height = paint(svg, width);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    highlight(svg);
  };
  const name = title.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "");
  const files = {
    SVG: () => save(`${name}.svg`, "image/svg+xml", standalone(svg, title, legend())),
    PNG: () => savePicture(`${name}.png`, standalone(svg, title, legend())),
    CSV: () => save(`${name}.csv`, "text/csv", csv()),
  };
  for (const [kind, write] of Object.entries(files)) {
    const button = make("button", { type: "button", "data-file": kind, "aria-label": `${title} as ${kind}` }, kind);
    button.addEventListener("click", write);
    tools.append(button);
  }
  new ResizeObserver(draw).observe(figure);
  return { figure, svg, tip, tools, draw };
}

/**
 * A chart of lines and dots.
 * spec: { title, x: name of the axis, xScale, yScale ("auto" is linear, or symlog where one line flattens the others), zero,
 *         seeds: whether to draw a line per seed,
 *         series: [{label, look, x, mean, low?, high?, raw?, fixed?, phases?, end?}], dots: [{label, look, at: [[x, y]]}],
 *         fit: "lines" if dots far from the lines are arrows at the edge, across: [{y, name}], upright: [{x, name}] }
 */
function chart(spec) {
  const visible = (s) => s.fixed || !hidden.has(s.label);
  const shown = () => spec.series.filter(visible), dots = () => (spec.dots ?? []).filter(visible);
  const entries = () => { // of the legend of a downloaded picture
    const named = new Map([...shown(), ...dots()].map((s) => [s.label, s.look]));
    return [...named].map(([label, look]) => ({ label, look }));
  };
  const { figure, svg, tip, tools, draw } = framed(spec.title, paint, () => csvOf(spec), entries);
  svg.setAttribute("tabindex", 0);
  svg.setAttribute("aria-label", `${spec.title}. Arrow keys read it out, plus and minus zoom, 0 shows all.`);
  const all = make("button", { type: "button", class: "all", hidden: "" }, "show all");
  tools.prepend(all);
  let zoom = null; // { x: [low, high], y: [low, high] or nothing to fit }
  let cursor = null; // index in the grid
  let near = null; // a dot under the pointer
  let frame = null; // scales and edges of the last drawing
  let drag = null; // corners of a rectangle, in pixels

  function paint(svg, width) {
    const strips = stripsOf(shown()), top = MARGIN.top + STRIP * strips.length, bottom = top + PLOT;
    const [x, y, scale] = axes(spec, shown(), dots(), zoom);
    const left = MARGIN.left, right = width - MARGIN.right;
    const px = (v) => left + x.at(v) * (right - left), py = (v) => bottom - y.at(v) * (bottom - top);
    frame = { x, y, px, py, left, right, top, bottom };
    all.hidden = zoom === null;
    figure.querySelector("small").textContent = scale === "symlog" ? "symlog axis" : scale === "log" ? "log axis" : "";
    drawAxes(svg, spec, frame, width);
    const inside = make("svg", { x: left, y: top, width: right - left, height: bottom - top, viewBox: `${left} ${top} ${right - left} ${bottom - top}` });
    svg.append(inside); // an inner svg cuts off what a zoom leaves outside
    for (const { y: at } of spec.across ?? []) inside.append(make("line", { class: "exact", x1: left, x2: right, y1: py(at), y2: py(at) }));
    for (const { x: at } of spec.upright ?? []) inside.append(make("line", { class: "mark", x1: px(at), x2: px(at), y1: top, y2: bottom }));
    for (const s of shown()) drawSeries(inside, s, frame, scale, spec.seeds);
    for (const d of dots()) for (const [u, v] of d.at)
      inside.append(dotAt(px(u), py(v), { left, right, top, bottom }, spec.fit === "lines" && !zoom, d));
    for (const { y: at, name } of spec.across ?? []) inside.append(make("text", { class: "marked", x: left + 5, y: py(at) - 5 }, `${name} ${short(at)}`));
    for (const { x: at, name } of spec.upright ?? []) {
      const turned = px(at) > (left + right) / 2;
      inside.append(make("text", { class: "marked", x: px(at) + (turned ? -5 : 5), y: spec.fit === "lines" ? bottom - 7 : top + 11, "text-anchor": turned ? "end" : "start" }, name));
    }
    strips.forEach((s, i) => drawStrip(svg, s, frame, MARGIN.top + STRIP * i));
    readOut(svg, width);
    if (drag) inside.append(make("rect", { class: "selection", x: Math.min(drag[0], drag[2]), y: drag[4] ? top : Math.min(drag[1], drag[3]),
      width: Math.abs(drag[2] - drag[0]), height: drag[4] ? bottom - top : Math.abs(drag[3] - drag[1]) }));
    return bottom + MARGIN.bottom;
  }

  /** The numbers under the cursor, the largest first; or those of a dot. */
  function readOut(svg, width) {
    tip.replaceChildren();
    tip.classList.toggle("open", near !== null || (cursor !== null && shown().length > 0));
    if (!tip.classList.contains("open")) return;
    const at = near ? near.at[0] : grid()[cursor];
    tip.append(make("span", {}, `${spec.x} ${near ? short(at, 6) : at.toLocaleString("en")}`));
    if (near) tip.append(make("span", {}, make("b", { class: lookOf(near.look) }, near.label), ` ${short(near.at[1], 6)}`));
    else {
      svg.append(make("line", { class: "cursor", x1: frame.px(at), x2: frame.px(at), y1: MARGIN.top, y2: frame.bottom }));
      const rows = shown().filter((s) => at >= s.x[0] && at <= s.x[s.x.length - 1]).map((s) => ({ s, i: nearest(s.x, at) }));
      for (const { s, i } of rows.sort((a, b) => b.s.mean[b.i] - a.s.mean[a.i])) {
        const band = s.low ? ` [${short(s.low[i])}, ${short(s.high[i])}]` : "";
        const phase = s.phases?.filter((p) => p.start < at).at(-1);
        tip.append(make("span", {}, make("b", { class: lookOf(s.look) }, s.label), ` ${short(s.mean[i])}${band}${phase ? `, ${phase.name}` : ""}`));
      }
    }
    const place = frame.px(at), before = place > width / 2;
    tip.style.left = before ? "" : `${place + 12}px`;
    tip.style.right = before ? `${width - place + 12}px` : "";
    tip.style.top = `${frame.top}px`;
  }

  const grid = () => {
    const longest = shown().reduce((a, s) => (s.x.length > a.length ? s.x : a), []);
    return zoom ? longest.filter((v) => v >= zoom.x[0] && v <= zoom.x[1]) : longest;
  };
  const move = (to) => { cursor = grid().length ? Math.max(0, Math.min(grid().length - 1, to)) : null; draw(); };
  const show = (to) => { zoom = to; cursor = near = null; draw(); };
  /** Zoom by a factor around a place (a share of the axis), or move by a share of what is visible; never beyond the data. */
  const zoomBy = (factor, around = 0.5, by = 0) => {
    const full = axes(spec, shown(), dots(), null)[0], share = (v) => full.at(v);
    const [low, high] = [share(frame.x.low), share(frame.x.high)], width = Math.min(1, (high - low) * factor);
    if (width < 1e-4) return;
    const from = Math.min(Math.max(low + around * (high - low - width) + by * width, 0), 1 - width);
    show(width >= 1 ? null : { x: [full.value(from), full.value(from + width)] });
  };
  const position = (event) => {
    const box = svg.getBoundingClientRect();
    return [Math.min(Math.max(event.clientX - box.left, frame.left), frame.right), Math.min(Math.max(event.clientY - box.top, frame.top), frame.bottom)];
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [u, v] = position(event);
    drag = [u, v, u, v, true];
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const [u, v] = position(event);
    if (drag) { drag = [drag[0], drag[1], u, v, Math.abs(v - drag[1]) < 24 || event.pointerType === "touch"]; draw(); return; }
    const points = dots().flatMap((d) => d.at.map((at) => ({ ...d, at, far: Math.hypot(frame.px(at[0]) - u, frame.py(at[1]) - v) })));
    near = points.filter((p) => p.far < 14).sort((a, b) => a.far - b.far)[0] ?? null;
    const gaps = grid().map((k) => Math.abs(frame.px(k) - u));
    if (gaps.length) move(gaps.indexOf(Math.min(...gaps)));
    else draw();
  });
  svg.addEventListener("pointerup", () => {
    const chosen = drag;
    drag = null;
    if (!chosen || Math.abs(chosen[2] - chosen[0]) < 8) { draw(); return; }
    const share = (u) => (u - frame.left) / (frame.right - frame.left), height = (v) => (frame.bottom - v) / (frame.bottom - frame.top);
    const [a, b] = [chosen[0], chosen[2]].sort((x, y) => x - y), [d, c] = [chosen[1], chosen[3]].sort((x, y) => x - y);
    show({ x: [frame.x.value(share(a)), frame.x.value(share(b))], y: chosen[4] ? undefined : [frame.y.value(height(c)), frame.y.value(height(d))] });
  });
  svg.addEventListener("pointercancel", () => { drag = null; draw(); });
  svg.addEventListener("pointerleave", () => { cursor = near = null; draw(); });
  svg.addEventListener("dblclick", () => show(null));
  all.addEventListener("click", () => { show(null); svg.focus(); });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // without them the wheel moves the page
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 0.7 : 1 / 0.7, (position(event)[0] - frame.left) / (frame.right - frame.left));
  }, { passive: false });
  svg.addEventListener("keydown", (event) => {
    const place = cursor === null || !grid().length ? 0.5 : frame.x.at(grid()[cursor]);
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (step !== undefined && event.shiftKey) zoomBy(1, 0.5, Math.sign(step) * 0.25);
    else if (step !== undefined) move((cursor ?? grid().length - 1) + step);
    else if (event.key === "+" || event.key === "=") zoomBy(0.6, place);
    else if (event.key === "-") zoomBy(1 / 0.6, place);
    else if (event.key === "0" || event.key === "Escape") show(null);
    else return;
    event.preventDefault();
  });
  figure.redraw = () => { cursor = null; draw(); };
  charts.add(figure);
  return figure;
}

/** A dot; one that the axes leave out is an arrow at the edge, which points to it. */
function dotAt(u, v, { left, right, top, bottom }, marked, { label, look }) {
  const looks = { class: `dot ${lookOf(look)}`, "data-label": label };
  const x = Math.min(Math.max(u, left), right), y = Math.min(Math.max(v, top), bottom);
  if (!marked || (x === u && y === v)) return make("circle", { ...looks, cx: u, cy: v, r: 4.5 });
  const angle = Math.atan2(v - y, u - x) * 180 / Math.PI;
  return make("path", { ...looks, d: "M-14,-5 L-1,0 L-14,5 Z", transform: `translate(${x} ${y}) rotate(${angle})` }, make("title", {}, `${label} is beyond the edge`));
}

/** The dots that the axes make room for: all, or with fit "lines" those that are at most a quarter of the lines' range away from them. */
function fitted(spec, series, points) {
  if (spec.fit !== "lines" || !series.length) return points;
  const near = (value, values) => {
    const low = Math.min(...values), high = Math.max(...values), room = (high - low) / 4;
    return value >= low - room && value <= high + room;
  };
  const xs = series.flatMap((s) => s.x), ys = series.flatMap((s) => s.mean);
  return points.filter(([x, y]) => near(x, xs) && near(y, ys));
}

function nearest(sorted, x) {
  let best = 0;
  sorted.forEach((v, i) => { if (Math.abs(v - x) < Math.abs(sorted[best] - x)) best = i; });
  return best;
}

/**
 * The two scales and the kind of the upright one. There is room for all lines and dots, and for 0 on an axis of totals. Bands
 * may take as much room again above and below; wider ones, as few seeds have, run out of the chart and do not flatten it.
 */
function axes(spec, series, dots, zoom) {
  const extent = (values) => values.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Number.MAX_VALUE, -Number.MAX_VALUE]);
  const kind = spec.yScale !== "auto" ? spec.yScale : flattens(series.map((s) => s.mean)) ? "symlog" : "linear";
  const points = fitted(spec, series, dots.flatMap((d) => d.at)), edges = (s) => [s.x[0] - (s.width ?? 0) / 2, s.x.at(-1) + (s.width ?? 0) / 2];
  let xs = zoom ? zoom.x : extent([...series.flatMap(edges), ...points.map((p) => p[0]), ...(spec.upright ?? []).map((u) => u.x)]);
  if (!(xs[0] <= xs[1])) xs = spec.xScale === "log" ? [1, 10] : [0, 1]; // everything is hidden
  const aside = points.length && !zoom && spec.xScale === "linear" ? 0.02 * (xs[1] - xs[0]) : 0;
  const part = (s) => { // what is visible, and one point on either side
    if (!zoom) return [0];
    const first = s.x.findIndex((v) => v >= xs[0]), last = s.x.findLastIndex((v) => v <= xs[1]);
    return first < 0 || last < 0 ? [0, 0] : [Math.max(0, first - 1), last + 2];
  };
  const read = (lines) => series.flatMap((s) => lines(s).filter(Boolean).flatMap((line) => line.slice(...part(s))));
  const drawn = points.filter((p) => p[0] >= xs[0] && p[0] <= xs[1]).map((p) => p[1]);
  let lines = [...read((s) => [s.mean, ...(s.raw ?? [])]), ...drawn, ...(zoom ? [] : (spec.across ?? []).map((a) => a.y))];
  let bands = read((s) => [s.low, s.high]);
  if (kind === "log") [lines, bands] = [lines, bands].map((values) => values.filter((v) => v > 0));
  else if (spec.zero && !zoom) lines.push(0);
  let [low, high] = zoom?.y ?? (lines.length ? extent(lines) : kind === "log" ? [1, 10] : [0, 1]);
  if (!zoom?.y && bands.length) {
    const [under, over] = extent(bands), more = high > low ? high - low : Number.MAX_VALUE;
    [low, high] = [Math.min(low, Math.max(under, kind === "log" ? under : low - more)), Math.max(high, Math.min(over, high + more))];
  }
  const top = series.reduce((a, s) => s.mean.reduce((x, v) => Math.max(x, Math.abs(v)), a), 0), threshold = 10 ** Math.ceil(Math.log10(top / 1e3 || 1));
  const room = kind === "linear" && !zoom?.y ? (high - low) * 0.04 : 0;
  return [makeScale(spec.xScale, xs[0] - aside, xs[1] + aside), makeScale(kind, low - (spec.zero && low === 0 ? 0 : room), high + room, threshold), kind];
}

function drawAxes(svg, spec, { x, y, px, py, left, right, top, bottom }, width) {
  for (const t of y.ticks) {
    svg.append(make("line", { class: t === 0 ? "axis-line" : "grid-line", x1: left, x2: right, y1: py(t), y2: py(t) }));
    svg.append(make("text", { x: left - 7, y: py(t) + 4, "text-anchor": "end" }, short(t)));
  }
  const most = Math.max(2, Math.floor((width - left) / 62)), every = Math.ceil(x.ticks.length / most);
  x.ticks.forEach((t, i) => {
    svg.append(make("line", { class: "grid-line", x1: px(t), x2: px(t), y1: top, y2: bottom }));
    if (i % every) return;
    const half = (LETTER * short(t).length) / 2, end = px(t) + half > width;
    svg.append(make("text", { x: end ? width : px(t), y: bottom + 15, "text-anchor": end ? "end" : "middle" }, short(t)));
  });
  svg.append(make("line", { class: "axis-line", x1: left, x2: right, y1: bottom, y2: bottom }));
  svg.append(make("text", { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, spec.x));
}

function drawSeries(svg, s, { px, py, y: scale }, kind, seeds) {
  const floor = (v) => (kind === "log" ? Math.max(v, scale.low) : v);
  const known = s.x.map((_, i) => i).filter((i) => kind !== "log" || s.mean[i] > 0);
  if (!known.length) return;
  const point = (i, v) => `${px(s.x[i]).toFixed(1)},${py(floor(v)).toFixed(1)}`;
  const label = s.fixed ? undefined : s.label;
  if (s.width) { // a histogram
    const edge = (i, side) => px(s.x[i] + (side * s.width) / 2).toFixed(1), base = py(0).toFixed(1);
    const d = `M${edge(0, -1)},${base}${known.map((i) => `V${py(s.mean[i]).toFixed(1)}H${edge(i, 1)}`).join("")}V${base}`;
    svg.append(make("path", { class: `band ${lookOf(s.look)}`, "data-label": label, d }), make("path", { class: `line ${lookOf(s.look)}`, "data-label": label, d }));
    return;
  }
  if (s.low) {
    const low = known.map((i) => point(i, s.low[i])), high = known.map((i) => point(i, s.high[i])).reverse();
    svg.append(make("path", { class: `band ${lookOf(s.look)}`, "data-label": label, d: `M${low.join("L")}L${high.join("L")}Z` }));
  }
  for (const line of (seeds && s.raw) || [])
    svg.append(make("path", { class: `seed ${lookOf(s.look)}`, "data-label": label, d: `M${known.map((i) => point(i, line[i])).join("L")}` }));
  const dashes = s.look >= 7 ? "7 4" : undefined;
  svg.append(make("path", { class: `line ${lookOf(s.look)}`, "data-label": label, "stroke-dasharray": dashes, d: `M${known.map((i) => point(i, s.mean[i])).join("L")}` }));
}

/** The lines whose phases are shown: all that have some, or the chosen one where these are too many. */
function stripsOf(series) {
  const phased = series.filter((s) => s.phases?.length > 1);
  return phased.length <= MOST_STRIPS ? phased : phased.filter((s) => s.label === chosen);
}

/** Phases as parts of a strip in the colour of their algorithm, with names where there is room for them. */
function drawStrip(svg, s, { x, px, left, right }, top) {
  const strip = make("g", { class: lookOf(s.look), "data-label": s.label, "data-strip": s.label });
  s.phases.forEach(({ name, start }, i) => {
    const end = s.phases[i + 1]?.start ?? s.end, from = px(Math.max(start, x.low)), to = px(Math.min(end, x.high));
    if (end <= x.low || start >= x.high || !(to > from)) return;
    const a = Math.max(left, from), width = Math.min(right, to) - a;
    const part = make("rect", { class: i % 2 ? "phase odd" : "phase", x: a, y: top, width: Math.max(width - 1, 0.5), height: STRIP - 3, rx: 2 });
    part.append(make("title", {}, `${s.label}: ${name} from ${(start + 1).toLocaleString("en")} to ${end.toLocaleString("en")}`));
    strip.append(part);
    if (width > LETTER * name.length + 8) strip.append(make("text", { class: "phase-name", x: a + width / 2, y: top + STRIP - 6, "text-anchor": "middle" }, name));
  });
  svg.append(strip);
}

/**
 * Bars to the right, one per row, with a line at a bound.
 * spec: { title, x, rows: [{label, look, value, note?, low?, high?}], bound?: {value, name} }; low and high are whiskers.
 */
function bars(spec) {
  const longest = Math.max(...spec.rows.map((r) => r.label.length));
  const { figure, draw } = framed(spec.title, paint, () => csvText([["", spec.x, "low", "high"], ...spec.rows.map((r) => [r.label, r.value, r.low ?? "", r.high ?? ""])]), () => []);
  function paint(svg, width) {
    const left = Math.min(LETTER * longest + 14, 0.42 * width), right = width - 70, top = spec.bound ? 22 : 6;
    const ends = [0, ...spec.rows.flatMap((r) => [r.value, r.low ?? r.value, r.high ?? r.value]), ...(spec.bound ? [spec.bound.value] : [])];
    const x = makeScale("linear", Math.min(...ends), Math.max(...ends)), px = (v) => left + x.at(v) * (right - left);
    const bottom = top + BAR * spec.rows.length;
    spec.rows.forEach((r, i) => {
      const y = top + BAR * i, fits = Math.floor((left - 14) / LETTER);
      const name = make("text", { class: "named", x: left - 8, y: y + 15, "text-anchor": "end" }, r.label.length > fits ? `${r.label.slice(0, Math.max(fits - 1, 1))}…` : r.label);
      name.append(make("title", {}, r.label));
      const from = Math.min(px(0), px(r.value));
      svg.append(name, make("rect", { class: `bar-of ${lookOf(r.look)}`, x: from, y: y + 4, width: Math.max(Math.abs(px(r.value) - px(0)), 1), height: BAR - 8, rx: 2 }));
      if (r.low !== undefined) svg.append(make("line", { class: "whisker", x1: px(r.low), x2: px(r.high), y1: y + BAR / 2, y2: y + BAR / 2 }));
      svg.append(make("text", { class: "named", x: Math.max(px(r.value), px(r.high ?? r.value), px(0)) + 6, y: y + 15 }, short(r.value, 5) + (r.note ?? "")));
    });
    svg.append(make("line", { class: "axis-line", x1: px(0), x2: px(0), y1: top, y2: bottom }));
    if (spec.bound) {
      const at = px(spec.bound.value), half = (LETTER * spec.bound.name.length) / 2;
      svg.append(make("line", { class: "exact", x1: at, x2: at, y1: top - 6, y2: bottom + 2 }),
        make("text", { class: "marked", x: Math.min(Math.max(at, half), width - half), y: top - 9, "text-anchor": "middle" }, spec.bound.name));
    }
    svg.append(make("text", { x: (left + right) / 2, y: bottom + 18, "text-anchor": "middle" }, spec.x));
    return bottom + 26;
  }
  figure.redraw = draw;
  charts.add(figure);
  return figure;
}

/** The best value for every bound on a total, with policies as dots. */
function tradeoffChart(t, dots) {
  return chart({
    title: `best value against the bound on ${t.name}`, x: t.name, xScale: "linear", yScale: "linear", fit: "lines",
    series: [{ label: "optimum", fixed: true, look: 6, x: t.bounds, mean: t.values }], dots, upright: [{ x: t.bound, name: "the bound" }],
  });
}

// -- taking them away

const FORMULA = /^'*(?:[=+@]|-(?![\d.]+(?:[eE][+-]?\d+)?\s*%?$|inf))/;

/** One value as CSV has it; a text that a spreadsheet would take for a formula is written after an apostrophe. */
function csvCell(x) {
  const text = typeof x === "string" && FORMULA.test(x) ? `'${x}` : String(x);
  return /[",\r\n]|^\s|\s$|^#/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvText = (rows) => rows.map((row) => row.map((x) => csvCell(x ?? "")).join(",")).join("\n") + "\n";

/** The numbers of a chart: one line per point, with the mean, the ends of its interval and the seeds; then the dots. */
function csvOf(spec) {
  const seeds = Math.max(0, ...spec.series.map((s) => s.raw?.length ?? 0));
  const head = ["line", spec.x, "mean", "low", "high", ...Array.from({ length: seeds }, (_, i) => `run ${i + 1}`)];
  const lines = spec.series.flatMap((s) => s.x.map((x, i) => [s.label, x, s.mean[i], s.low?.[i] ?? "", s.high?.[i] ?? "", ...Array.from({ length: seeds }, (_, j) => s.raw?.[j]?.[i] ?? "")]));
  const dots = (spec.dots ?? []).flatMap((d) => d.at.map(([x, y]) => [d.label, x, y, "", "", ...Array(seeds).fill("")]));
  return csvText([head, ...lines, ...dots]);
}

/** The drawing as a document of its own: with its styles, its title above and its legend below. */
function standalone(svg, title, legend) {
  const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "paint-order", "opacity", "font-size", "font-family", "font-weight"];
  const [width, height] = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  const style = getComputedStyle(document.body), across = Math.max(1, Math.floor(width / (LETTER * Math.max(1, ...legend.map((e) => e.label.length)) + 40)));
  const below = Math.ceil(legend.length / across) * 18, whole = make("svg", { xmlns: SVG, width, height: height + below + 34, viewBox: `0 0 ${width} ${height + below + 34}` });
  const text = { fill: style.color, "font-family": style.fontFamily, "font-size": 12 };
  whole.append(make("rect", { width: "100%", height: "100%", fill: style.backgroundColor }), make("text", { ...text, x: 10, y: 18, "font-weight": 600 }, title));
  const copy = svg.cloneNode(true), from = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((element, i) => {
    const seen = getComputedStyle(from[i]);
    for (const name of KEPT) element.setAttribute(name, seen.getPropertyValue(name));
    element.removeAttribute("class");
  });
  copy.setAttribute("y", 26); copy.setAttribute("width", width); copy.setAttribute("height", height); copy.removeAttribute("tabindex");
  whole.append(copy);
  legend.forEach(({ label, look }, i) => {
    const x = 10 + (i % across) * (width / across), y = height + 40 + Math.floor(i / across) * 18;
    const stroke = getComputedStyle(document.documentElement).getPropertyValue(`--c${look % 7}`);
    whole.append(make("line", { x1: x, x2: x + 18, y1: y - 4, y2: y - 4, "stroke-width": 3, stroke }), make("text", { ...text, x: x + 24, y }, label));
  });
  return new XMLSerializer().serializeToString(whole);
}

function savePicture(name, text) {
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    saveAddress(name, canvas.toDataURL("image/png"));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

function save(name, type, text) { saveAddress(name, `data:${type};charset=utf-8,${encodeURIComponent(text)}`); }

function saveAddress(name, href) { make("a", { download: name, href }).click(); }
