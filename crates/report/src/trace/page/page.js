"use strict";
/* The calls of a thread are stored by column, in the order of their beginnings:
   function (-1 for merged short calls), calls, depth, from, to, step. */
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const make = (tag, text, kind) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind; return e; };
const action = (text, run, kind) => { const b = make("button", text, kind); b.onclick = run; return b; };
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const short = (file) => file.split("/").pop();
const functionName = (f) => data.functions[f][0];
const ROW = 20, MAX_ROWS = 3000, OPENS = -1, CLOSES = -2;

const state = { thread: null, from: 0, to: 1, top: 0, chosen: -1, tab: "source", found: null, place: -1 };
const calls = () => state.thread.calls;
const end = () => state.thread.end;

/* Threads and the header. */
data.threads.forEach((thread) => {
  const c = thread.calls;
  thread.end = c.to.reduce((a, b) => Math.max(a, b), 1);
  thread.deepest = c.depth.reduce((a, b) => Math.max(a, b), 0);
  thread.executed = new Map(thread.counts.blocks);
  thread.called = new Map(thread.counts.functions);
  get("thread").append(new Option(`${thread.thread}: ${plural(thread.counts.blocks.reduce((sum, [, n]) => sum + n, 0), "block")}`,
    get("thread").length));
});
get("threads").hidden = data.threads.length < 2;
document.title = `Trace of ${data.command.join(" ") || short(data.image)}`;
get("title").textContent = data.command.join(" ") || data.image;
const all = data.threads.reduce((sum, t) => sum + t.counts.blocks.reduce((s, [, n]) => s + n, 0), 0);
const allCalls = data.threads.reduce((sum, t) => sum + t.counts.functions.reduce((s, [, n]) => s + n, 0), 0);
get("headline").textContent =
  `${plural(all, "block")} in ${plural(allCalls, "call")}, from ${plural(data.runs, "run")} with ${data.collector}`;
const notes = [...data.notes];
if (data.shortest) notes.push(`calls of fewer than ${plural(data.shortest, "block")} are merged with their neighbours`);
if (!data.with_steps) notes.push("the trace is long: source and machine code have the counts of the whole thread; " +
  "trodden show --from '#N' prints a part block by block");
get("notes").append(...notes.map((n) => make("li", n)));

function showThread(number) {
  state.thread = data.threads[number];
  Object.assign(state, { from: 0, to: Math.max(1, end()), top: 0, chosen: -1, found: null, place: -1 });
  canvas.style.maxHeight = `${(state.thread.deepest + 2) * ROW}px`;
  get("detail").hidden = true;
  search();
  draw();
}

/* The chart of calls over time. */
const canvas = get("calls"), pen = canvas.getContext("2d");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const hue = (f) => (f * 137.508) % 360;
function draw() {
  const c = calls(), scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale; canvas.height = height * scale;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px ui-monospace, monospace"; pen.textBaseline = "middle";
  const light = colour("--light"), text = colour("--text"), many = colour("--many"), mark = colour("--chosen");
  const factor = width / (state.to - state.from), drawn = [];
  for (let i = 0; i < c.from.length; i++) {
    const y = (c.depth[i] - state.top) * ROW;
    if (y < 0 || y >= height || c.to[i] < state.from || c.from[i] > state.to) continue;
    const right = (Math.min(c.to[i], state.to) - state.from) * factor, left = Math.max(0, (c.from[i] - state.from) * factor);
    const wide = Math.max(right - left, 0.6), f = c.function[i], hit = state.found && f >= 0 && state.found.has(f);
    if (!hit && i !== state.chosen && drawn[c.depth[i]] > left + 0.5 && wide < 1) continue;
    drawn[c.depth[i]] = left + wide;
    pen.globalAlpha = state.found && !hit && i !== state.chosen ? 0.35 : 1;
    pen.fillStyle = f < 0 ? many : `hsl(${hue(f)} 60% ${light})`;
    pen.fillRect(left, y, Math.max(0.6, wide - (wide > 3 ? 1 : 0)), ROW - 1);
    if (i === state.chosen) { pen.strokeStyle = mark; pen.lineWidth = 2; pen.strokeRect(left + 1, y + 1, Math.max(1, wide - 2), ROW - 3); }
    if (wide > 24) { pen.fillStyle = text; clipped(f < 0 ? `${c.calls[i].toLocaleString("en")} calls` : functionName(f),
      left + 4, y + ROW / 2, wide - 8); }
  }
  pen.globalAlpha = 1;
}
function clipped(text, x, y, width) {
  const letters = Math.floor(width / 7.3);
  if (letters >= 2) pen.fillText(text.length <= letters ? text : `${text.slice(0, letters - 1)}…`, x, y);
}
/* Returns the index of the call under the pointer, or -1. */
function at(event) {
  const c = calls(), depth = Math.floor(event.offsetY / ROW) + state.top;
  const unit = (state.to - state.from) / canvas.clientWidth, time = state.from + event.offsetX * unit;
  for (const slack of [0, 2 * unit])
    for (let i = 0; i < c.from.length; i++) if (c.depth[i] === depth && c.from[i] - slack <= time && time < c.to[i] + slack) return i;
  return -1;
}
function showRange(from, to) {
  const size = Math.min(Math.max(4, to - from), end());
  state.from = Math.max(0, Math.min(from, end() - size));
  state.to = state.from + size;
  draw();
}
function zoom(factor, middle) {
  const before = state.to - state.from, size = Math.min(Math.max(4, before * factor), end());
  showRange(middle - (middle - state.from) / before * size, middle - (middle - state.from) / before * size + size);
}
const shift = (rows) => { state.top = Math.max(0, Math.min(state.thread.deepest, state.top + rows)); draw(); };
const move = (part) => { const size = state.to - state.from; showRange(state.from + part * size, state.to + part * size); };
let drag = null, moved = false;
canvas.onpointerdown = (e) => { drag = { x: e.offsetX, y: e.offsetY, from: state.from, to: state.to, top: state.top };
  moved = false; canvas.setPointerCapture(e.pointerId); };
canvas.onpointerup = () => { drag = null; };
canvas.onpointermove = (e) => {
  if (drag) {
    moved ||= Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) > 4;
    if (!moved) return;
    state.top = Math.max(0, Math.min(state.thread.deepest, drag.top - Math.round((e.offsetY - drag.y) / ROW)));
    const by = (drag.x - e.offsetX) / canvas.clientWidth * (drag.to - drag.from);
    showRange(drag.from + by, drag.to + by);
    return;
  }
  const i = at(e);
  get("at").textContent = i < 0 ? "" : described(i);
};
canvas.onclick = (e) => { const i = at(e); if (!moved && i >= 0) choose(i); };
canvas.ondblclick = (e) => { const i = at(e); if (i >= 0) showRange(calls().from[i], calls().to[i]); };
canvas.onwheel = (e) => { e.preventDefault(); if (e.shiftKey) shift(Math.sign(e.deltaY || e.deltaX) * 3);
  else zoom(e.deltaY > 0 ? 1.25 : 0.8, state.from + e.offsetX / canvas.clientWidth * (state.to - state.from)); };
canvas.onkeydown = (e) => {
  const keys = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), ArrowUp: () => shift(-1),
    ArrowDown: () => shift(1), "+": () => zoom(0.5, (state.from + state.to) / 2), "-": () => zoom(2, (state.from + state.to) / 2) };
  if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
};
window.onresize = draw;
get("whole").onclick = () => { state.top = 0; showRange(0, end()); };
get("thread").onchange = () => showThread(get("thread").value);
function described(i) {
  const c = calls(), f = c.function[i];
  return `${f < 0 ? plural(c.calls[i], "short call") : functionName(f)}: blocks #${c.from[i]} to #${c.to[i] - 1}, depth ${c.depth[i]}`;
}

/* Search. */
function search() {
  const words = get("search").value.trim().toLowerCase(), called = state.thread.called;
  const found = words ? [...called.keys()].filter((f) => functionName(f).toLowerCase().includes(words)) : [];
  state.found = words ? new Set(found) : null;
  state.place = -1;
  found.sort((a, b) => called.get(b) - called.get(a));
  get("matches").replaceChildren(...found.slice(0, 60).map((f) => {
    const button = action(`${functionName(f)} (${plural(called.get(f), "call")})`, () => {
      const only = state.found.size === 1 && found.length > 1;
      state.found = new Set(only ? found : [f]); state.place = -1;
      document.querySelectorAll("#matches button").forEach((b) => b.setAttribute("aria-pressed", !only && b === button));
      step(1);
    });
    return button;
  }));
  get("found").textContent = words ?
    `${plural(found.length, "function")}, ${plural(found.reduce((sum, f) => sum + called.get(f), 0), "call")}` : "";
  get("next").disabled = get("previous").disabled = !found.length;
}
get("search").oninput = () => { search(); draw(); };
get("search").onkeydown = (e) => { if (e.key === "Enter") step(e.shiftKey ? -1 : 1); };
/* Goes to the next or previous call of the found functions. */
function step(by) {
  const c = calls(), shown = [];
  if (!state.found) return;
  for (let i = 0; i < c.function.length; i++) if (state.found.has(c.function[i])) shown.push(i);
  if (!shown.length) { get("found").textContent =
    "its calls are too short to be shown individually: trodden find lists them"; draw(); return; }
  state.place = (state.place + by + shown.length) % shown.length;
  if (state.place < 0) state.place = shown.length - 1;
  get("found").textContent = `call ${state.place + 1} of ${shown.length}`;
  reveal(shown[state.place]);
}
get("next").onclick = () => step(1);
get("previous").onclick = () => step(-1);
/* Selects a call and scrolls it into view. */
function reveal(i) {
  const c = calls(), size = c.to[i] - c.from[i], seen = state.to - state.from;
  if (c.from[i] < state.from || c.to[i] > state.to || size < seen / 200) showRange(c.from[i] - 2 * size - 4, c.to[i] + 2 * size + 4);
  const rows = Math.floor(canvas.clientHeight / ROW);
  if (c.depth[i] < state.top || c.depth[i] >= state.top + rows) state.top = Math.max(0, c.depth[i] - Math.floor(rows / 2));
  choose(i);
}

/* Selects a call and shows its details. */
function choose(i) {
  state.chosen = i;
  get("detail").hidden = false;
  draw();
  showDetail();
}
/* The calls around a call, outermost first. */
function parents(i) {
  const c = calls(), found = [];
  for (let j = i, depth = c.depth[i]; j >= 0 && depth > 0; j--) if (c.depth[j] < depth) { found.unshift(j); depth = c.depth[j]; }
  return found;
}
/* The call's own blocks and calls in order, the count of each block, and the calls of each function. */
function own(i) {
  const steps = state.thread.steps, order = [], counts = new Map(), callees = new Map();
  let depth = 0, number = calls().from[i];
  for (let s = calls().step[i]; s < steps.length && depth >= 0; s++) {
    const it = steps[s];
    if (it === OPENS) {
      if (depth++ === 0) { const f = firstFunction(steps, s); order.push([number, -1 - f]); callees.set(f, (callees.get(f) || 0) + 1); }
    } else if (it === CLOSES) depth--;
    else { if (depth === 0) { order.push([number, it]); counts.set(it, (counts.get(it) || 0) + 1); } number++; }
  }
  return { order, counts, callees };
}
function firstFunction(steps, s) { while (steps[s] < 0) s++; return data.blocks[steps[s]][0]; }
function showDetail() {
  const i = state.chosen, c = calls(), f = c.function[i];
  get("stack").replaceChildren(...parents(i).flatMap((p) => [action(functionName(c.function[p]), () => reveal(p)), " › "]));
  get("name").textContent = f < 0 ? plural(c.calls[i], "short call") : functionName(f);
  const length = c.to[i] - c.from[i];
  const entry = f < 0 ? "" : `, entry ${data.functions[f][1]}`;
  get("about").textContent = `blocks #${c.from[i]} to #${c.to[i] - 1} (${plural(length, "block")} including callees)${entry}`;
  document.querySelectorAll(".tabs button").forEach((b) => b.setAttribute("aria-pressed", b.dataset.tab === state.tab));
  if (f < 0) { get("body").replaceChildren(make("p",
    `Consecutive calls of fewer than ${plural(data.shortest, "block")}: ` +
    `trodden show --from '#${c.from[i]}' --to '#${c.to[i] - 1}' prints them.`)); return; }
  const exact = data.with_steps ? own(i) : null, counts = exact ? exact.counts : state.thread.executed;
  const tabs = { source: () => sourceRows(f, counts), code: () => codeRows(f, counts), order: () => orderRows(exact),
    callees: () => calleeRows(i, exact) };
  get("body").replaceChildren(...tabs[state.tab]());
  get("body").querySelector(".executed")?.scrollIntoView({ block: "nearest" });
}
document.querySelectorAll(".tabs button").forEach((b) => { b.onclick = () => { state.tab = b.dataset.tab; showDetail(); }; });
const row = (first, second, third, kind) => { const r = make("div", undefined, `row ${kind || ""}`);
  r.append(make("span", first), make("span", second), third instanceof Node ? third : make("span", third)); return r; };
function blocksOf(f) { const found = []; data.blocks.forEach((b, n) => { if (b && b[0] === f) found.push(n); }); return found; }
function sourceRows(f, counts) {
  const lines = new Map();
  for (const b of blocksOf(f)) for (const [file, line] of data.blocks[b][2]) {
    if (!lines.has(file)) lines.set(file, new Map());
    lines.get(file).set(line, Math.max(lines.get(file).get(line) || 0, counts.get(b) || 0));
  }
  if (!lines.size) return [make("p", "The program has no line numbers for this function.")];
  return [...lines].flatMap(([file, of]) => {
    const text = data.source[file], rows = [row("", "", data.files[file], "file")];
    if (!text) return [...rows, make("p", "The source file cannot be read."),
      ...[...of].sort((a, b) => a[0] - b[0]).map(([n, times]) => row(times || "", n, "", times ? "executed" : ""))];
    const first = Math.min(...of.keys()) - 3, last = Math.max(...of.keys()) + 3;
    let before = null;
    for (const [n, line] of text) {
      if (n < first || n > last) continue;
      if (before !== null && n > before + 1) rows.push(row("", "⋮", "", "gap"));
      rows.push(row(of.has(n) ? of.get(n) : "", n, line, of.get(n) ? "executed" : ""));
      before = n;
    }
    return rows;
  });
}
function codeRows(f, counts) {
  return blocksOf(f).flatMap((b) => {
    const [, address, lines, code] = data.blocks[b], times = counts.get(b) || 0, kind = times ? "executed" : "";
    const where = lines.length ? `${short(data.files[lines[0][0]])}:${lines[0][1]}` : "";
    return [row(times, "", `block ${address} ${where}`, `file ${kind}`), ...(code || []).map((text) => row("", "", text, kind))];
  });
}
function orderRows(exact) {
  if (!exact) return [make("p", "The trace is too long to be shown block by block.")];
  const rows = exact.order.slice(0, MAX_ROWS).map(([number, it]) => {
    if (it < 0) { const f = -1 - it; return row(`#${number}`, "", action(`call ${functionName(f)}`, () => {
      const j = callAt(number, f); if (j >= 0) reveal(j); })); }
    const [, address, lines] = data.blocks[it];
    return row(`#${number}`, "", `${address}${lines.length ? `  ${short(data.files[lines[0][0]])}:${lines[0][1]}` : ""}`, "executed");
  });
  if (exact.order.length > MAX_ROWS) rows.push(make("p", `${plural(exact.order.length - MAX_ROWS, "more step")}`));
  return rows;
}
function callAt(number, f) { const c = calls(), depth = c.depth[state.chosen] + 1;
  return c.from.findIndex((from, j) => from === number && c.depth[j] === depth && (c.function[j] === f || c.function[j] < 0)); }
function calleeRows(i, exact) {
  const c = calls(), rows = [];
  for (let j = i + 1; j < c.from.length && c.depth[j] > c.depth[i] && rows.length < MAX_ROWS; j++) {
    if (c.depth[j] !== c.depth[i] + 1) continue;
    rows.push(row(`#${c.from[j]}`, c.to[j] - c.from[j], action(c.function[j] < 0 ? plural(c.calls[j], "short call") :
      functionName(c.function[j]), () => reveal(j))));
  }
  if (exact && exact.callees.size) rows.unshift(...[...exact.callees].sort((a, b) => b[1] - a[1]).map(([f, n]) => row(n,
    "times", functionName(f), "file")));
  return rows.length ? rows : [make("p", "It makes no traced calls.")];
}
showThread(0);
