"use strict";
// Scales, ticks and numbers: pure functions, no page.

/** A map from data to [0, 1], its inverse and its ticks. kind: "linear", "log" or "symlog" (linear within +-threshold). */
function makeScale(kind, low, high, threshold = 1) {
  if (low === high) { low -= Math.abs(low) / 2 || 0.5; high += Math.abs(high) / 2 || 0.5; }
  const bend = {
    linear: (x) => x,
    log: (x) => Math.log10(x),
    symlog: (x) => Math.sign(x) * Math.log10(1 + Math.abs(x) / threshold),
  }[kind];
  const unbend = {
    linear: (u) => u,
    log: (u) => 10 ** u,
    symlog: (u) => Math.sign(u) * (10 ** Math.abs(u) - 1) * threshold,
  }[kind];
  const from = bend(low), to = bend(high);
  const ticks = kind === "linear" ? linearTicks(low, high) : kind === "log" ? logTicks(low, high) : symlogTicks(low, high, threshold);
  return { at: (x) => (bend(x) - from) / (to - from), value: (share) => unbend(from + share * (to - from)), ticks, low, high };
}

/** Four to eight round numbers between low and high. */
function linearTicks(low, high) {
  const rough = (high - low) / 6.5, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

function powers(low, high) {
  const found = [];
  for (let e = Math.ceil(Math.log10(low) - 1e-9); e <= Math.log10(high) + 1e-9; e++) found.push(10 ** e);
  return found;
}

/** At most about seven powers of ten, or round numbers where there are fewer than two. */
function logTicks(low, high) {
  const all = powers(low, high), every = Math.ceil(all.length / 7);
  return all.length < 2 ? linearTicks(low, high).filter((x) => x > 0) : all.filter((_, i) => (all.length - 1 - i) % every === 0);
}

function symlogTicks(low, high, threshold) {
  const top = Math.max(Math.abs(low), Math.abs(high)), all = top > threshold ? powers(threshold, top).slice(-6) : [];
  const kept = all.filter((_, i) => (all.length - 1 - i) % Math.ceil(all.length / 3) === 0);
  return [...kept.map((x) => -x).reverse(), 0, ...kept].filter((x) => x >= low && x <= high);
}

/**
 * Whether one line would flatten the others on a linear axis: the largest size of all is more than FLATTENING times the
 * upper quartile of the sizes along the line in the middle.
 */
function flattens(lines) {
  const quartiles = [], FLATTENING = 12;
  let top = 0;
  for (const line of lines) {
    const sizes = line.map(Math.abs).sort((a, b) => a - b);
    quartiles.push(sizes[Math.floor(0.75 * (sizes.length - 1))]);
    top = Math.max(top, sizes[sizes.length - 1]);
  }
  quartiles.sort((a, b) => a - b);
  const middle = quartiles[Math.floor((quartiles.length - 1) / 2)];
  return middle > 0 && top > FLATTENING * middle;
}

/** A number for an axis or a readout. */
function short(x, digits = 4) {
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6) return `${+(x / 1e6).toPrecision(digits)} M`;
  if (size >= 1e4) return `${+(x / 1e3).toPrecision(digits)} k`;
  return size < 1e-4 ? x.toExponential(2) : String(+x.toPrecision(digits));
}

/** A probability that is never shown as certain unless it is. */
function percent(p) {
  const text = (100 * p).toPrecision(3);
  return p < 1 && +text === 100 ? "> 99.9 %" : `${+text} %`;
}
