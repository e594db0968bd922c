// The page: the list of functions, the paths of the chosen one, and its source and graph with the chosen path.
// Text from the program is inserted as text, never as markup.

const summary = JSON.parse(document.getElementById("summary").textContent);
const $ = (id) => document.getElementById(id);
const ROW = 47;
const state = { sort: "w", search: "", function: -1, path: 0, list: [], detail: null, listing: false };
const details = new Map();

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Counts beyond 2^53 are strings.
function full(number) { return BigInt(number).toLocaleString("en"); }

function brief(number) {
  let value = Number(number), unit = 0;
  if (Math.abs(value) < 1000) return String(number);
  while (Math.abs(value) >= 999.5) { value /= 1000; unit++; }
  const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return `${fixed(value, digits)}${["", "k", "M", "G", "T", "P", "E"][unit]}`;
}

function plural(number, word) { return `${number} ${word}${String(number) === "1" ? "" : "s"}`; }

function percent(share) {
  if (!share || share <= 0) return "0%";
  if (share < 0.0005) return "<0.1%";
  return share >= 0.99995 ? "100%" : `${fixed(share * 100, 1)}%`;
}

// The name in two parts: when the space is too small, the first one is shortened, so that the function's own name stays visible.
function nameParts(name) {
  let depth = 0, at = 0;
  for (let i = 0; i < name.length; i++) {
    if ("<({[".includes(name[i])) depth++;
    else if (">)}]".includes(name[i]) && name[i - 1] !== "-") depth--;
    else if (depth === 0 && name.startsWith("::", i)) at = i;
  }
  return [name.slice(0, at), name.slice(at)];
}

// ---- header

function showHeader() {
  $("program").textContent = summary.program;
  $("command").textContent = [summary.command, ...summary.about_run].filter(Boolean).join("   ·   ");
  $("command").title = summary.command;
  $("measure").textContent = $("share-of").textContent = summary.measure;
  $("share-heading").title = $("sort-share").title = `percentage of all executed ${summary.measure} of the program` +
    (summary.measure === "events" ? "" : "; not a share of time");
  const t = summary.totals;
  const total = (name, value, hint) => element("div", { title: hint }, element("dt", {}, name), element("dd", {}, value));
  $("totals").append(total("paths executed", t.executions, "executions of complete paths"), total("different paths", t.paths),
    total("functions", `${t.executed} of ${t.instrumented}`, "executed, of those instrumented"),
      total("unfinished", t.unfinished, "executions that stopped in a call that did not return"));
}

// ---- functions

function sortFunctions() {
  const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = summary.functions.map((f, i) => ({ f, i }))
    .filter(({ f }) => words.every((w) => `${f.f} ${f.s || ""}`.toLowerCase().includes(w)));
  const order = { w: (a, b) => b.f.w - a.f.w, c: (a, b) => Number(b.f.c) - Number(a.f.c), p: (a, b) => b.f.p - a.f.p,
    n: (a, b) => a.f.n.localeCompare(b.f.n) }[state.sort];
  const exact = ({ f }) => f.n === state.search || f.f === state.search;
  found.sort((a, b) => exact(b) - exact(a) || order(a, b) || a.i - b.i);
  state.list = found.map(({ i }) => i);
  const never = state.list.filter((i) => !summary.functions[i].x).length;
  const unused = never ? `, ${never} never executed` : "";
  $("shown").textContent = `${state.list.length} of ${summary.functions.length} functions${unused}. ${summary.left_out || ""}`;
  $("functions").scrollTop = 0;
  drawFunctions();
}

// Only visible rows are in the document: programs have thousands of functions.
function drawFunctions() {
  const host = $("functions"), first = Math.max(0, Math.floor(host.scrollTop / ROW) - 5),
    last = Math.min(state.list.length, first + Math.ceil(host.clientHeight / ROW) + 11);
  const space = element("div", { style: `height:${state.list.length * ROW + 8}px` });
  for (let at = first; at < last; at++) space.append(functionRow(state.list[at], at));
  host.replaceChildren(space);
}

function functionRow(number, at) {
  const f = summary.functions[number];
  const row = element("div", { class: `fn${f.x ? "" : " never"}`, role: "option", "data-function": number,
    "aria-selected": number === state.function, title: f.f, style: `top:${at * ROW + 4}px` },
    element("span", { class: "name" }, ...nameParts(f.n).map((part) => element("span", {}, part))),
    element("span", { class: "share" }, f.x ? percent(f.w) : "–"),
    element("span", { class: "file" }, f.s ? `${f.s.split("/").pop()}:${f.l || "?"}` : f.i),
    element("span", { class: "sub" }, f.x ? `${plural(brief(f.c), "call")} · ${plural(f.p, "path")}` : "never executed"),
    element("div", { class: "meter" }, element("i", { style: `width:${f.w * 100}%` })));
  row.addEventListener("click", () => chooseFunction(number));
  return row;
}

function detailOf(number) {
  if (!details.has(number)) {
    const block = $(`function-${number}`);
    details.set(number, block ? JSON.parse(block.textContent) : null);
  }
  return details.get(number);
}

function chooseFunction(number, path) {
  state.function = number;
  state.detail = detailOf(number);
  state.path = 0;
  drawFunctions();
  showHead();
  const has = state.detail !== null;
  document.querySelector(".paths").hidden = document.querySelector(".panes").hidden = !has;
  if (!has) { saveToAddress(); return; }
  $("executed").checked = state.detail.blocks.length > 60;
  showGraph();
  showPaths();
  choosePath(path === undefined ? 0 : Math.max(0, allPaths().findIndex((p) => String(p.id) === path)));
}

function showHead() {
  const f = summary.functions[state.function], d = state.detail;
  const chip = (text, bold, warn) => element("span", { class: warn ? "chip warn" : "chip" }, element("b", {}, bold), ` ${text}`);
  const chips = element("div", { class: "chips" });
  if (f.x) chips.append(chip(`of all ${summary.measure}`, percent(f.w)), chip(String(f.c) === "1" ? "call" : "calls", full(f.c)));
  if (d) chips.append(chip(`of ${full(d.possible)} possible paths executed`, full(d.executed)));
  if (f.u) chips.append(chip("paths: a call did not return", "unfinished", true));
  if (f.k) chips.append(chip("into pieces, having too many paths", "cut", true));
  if (!f.x) chips.append(element("span", { class: "chip" }, "never executed"));
  else if (!d) chips.append(element("span", { class: "chip warn" },
    "details left out of this page to keep it small; use trodden report --function"));
  $("head").replaceChildren(element("h2", {}, f.f), element("span", { class: "at" }, f.s ? `${f.s}:${f.l || "?"}` :
    "no debug information"), chips);
}

// ---- paths

function allPaths() { return [...state.detail.paths, ...state.detail.unfinished]; }

function showPaths() {
  const d = state.detail, body = document.querySelector("#paths tbody"), top = Math.max(1e-300, ...d.paths.map((p) => p.w));
  body.replaceChildren();
  const row = (p, at, share, meter, extra) => {
    const made = element("tr", { "data-path": at, "aria-selected": "false", class: extra },
      element("td", { class: "num" }, share), element("td", { class: "meter-cell" },
      element("span", {}, element("i", { style: `width:${meter * 100}%` }))),
      element("td", { class: "num" }, full(p.c)), element("td", { class: "num" }, full(p.id)),
        element("td", { class: "num", title: `${full(p.i)} instructions` }, String(p.n.length)),
        element("td", { class: "text", title: p.b }, p.b.replace(/^begins /, "")), element("td", { class: "text", title: p.e }, p.e));
    made.addEventListener("click", () => choosePath(at));
    body.append(made);
  };
  const note = (text) => body.append(element("tr", { class: "note" }, element("td", { colspan: 7 }, text)));
  d.paths.forEach((p, at) => row(p, at, percent(p.w), p.w / top, null));
  if (d.more) note(`... and ${plural(full(d.more), "path")} of smaller share (trodden report --function shows them)`);
  d.unfinished.forEach((p, at) => row(p, d.paths.length + at, "unfinished", 0, "unfinished"));
  if (d.more_unfinished) note(`... and ${full(d.more_unfinished)} more unfinished paths`);
  for (const [count, line,
    block] of d.lost) note(`${full(count)} interrupted on a path that began at ${line ? `line ${line}` : `block ${block}`}`);
  if (!d.paths.length && !d.unfinished.length) note("No path was completed.");
}

function choosePath(at) {
  state.path = at;
  const path = allPaths()[at];
  for (const row of document.querySelectorAll("#paths tbody tr[data-path]")) {
    const is = Number(row.dataset.path) === at;
    row.setAttribute("aria-selected", is);
    if (is) row.scrollIntoView({ block: "nearest" });
  }
  showSource(path);
  if (state.listing || $("source").hidden) showListing(path);
  else state.listed = null;
  graph.mark(path ? path.n : [], path ? path.g : []);
  graph.reveal(path ? path.n : []);
  saveToAddress();
}

// ---- source

function row(kind, count, line, text, way, words) {
  const n = element("span", { class: Number(count) === 0 && count !== null ? "n zero" : "n", title: count === null ?
    null : full(count) }, count === null ? "" : brief(count));
  const d = element("span", { class: `d ${way || ""}` }), indent = text.length - text.trimStart().length + 4;
  (words ? words.split("; ") : []).forEach((turn, i) => {
    const [taken, not] = turn.split(", not ");
    d.append(i > 0 ? "\n" : "", taken, not ? element("small", {}, `, not ${not}`) : "");
  });
  return element("div", { class: `row ${kind}`, "data-line": line }, n, element("span", { class: "l" }, line === null ?
    "" : String(line)), element("span", { class: "c" }, element("span", { class: "t", style: `--i:${indent}` }, text), d));
}

function callRow(indent, [callee, file, line]) {
  const made = row("call on", null, null, `${" ".repeat(indent)}↳ ${callee}  `, "", "");
  made.querySelector(".t").append(element("small", {}, `in ${file || "?"}, called in line ${line}`));
  return made;
}

function newCalls(before, calls) {
  let common = 0;
  while (common < calls.length && common < before.length && before[common][3] === calls[common][3]) common++;
  return common;
}

function showSource(path) {
  const d = state.detail, host = $("source"), source = d.source;
  host.replaceChildren();
  $("where").textContent = source ? source.file : "";
  $("where").title = source ? source.file : "";
  if (!source || source.missing) {
    host.append(element("p", { class: "empty" }, source ? `The source file could not be read: ${source.file}` :
      "No debug information: build with -g to see source lines."));
    showTab(true);
    return;
  }
  showTab(state.listing);
  const at = new Map();
  for (const step of path ? path.s : []) {
    const place = d.places[step[0]];
    if (place && place.o !== null) at.set(place.o, [...(at.get(place.o) || []), step]);
  }
  source.lines.forEach(([text, count], i) => {
    const line = source.first + i, steps = at.get(line) || [], own = steps.filter((s) => !d.places[s[0]].k.length && s[2]);
    const kind = steps.length ? "on" : Number(count) === 0 && count !== null ? "never" : "";
    host.append(row(kind, count, line, text, own.length ? own[own.length - 1][3] : "", own.map((s) => s[2]).join("; ")));
    appendInlined(host, steps.filter((s) => d.places[s[0]].k.length));
  });
  if (source.cut) host.append(element("p", { class: "empty" }, "The rest of this function's source is left out."));
  // The first line that the path executes, which need not be its uppermost one.
  const begins = (path ? path.s : []).map((step) => d.places[step[0]]).find((place) => place && place.o !== null);
  const first = (begins && host.querySelector(`[data-line="${begins.o}"]`)) || host.querySelector(".row.on");
  host.scrollTop = first ? Math.max(0, first.offsetTop - host.offsetTop - 90) : 0;
}

function appendInlined(host, steps) {
  let before = [];
  for (const [number, blocks, words, way] of steps) {
    const place = state.detail.places[number], base = indentOf(place);
    for (let depth = newCalls(before, place.k); depth < place.k.length; depth++) host.append(callRow(base + 2 * depth, place.k[depth]));
    host.append(row(place.t === null ? "on inlined blank" : "on inlined", blockCount(blocks), place.l, inlinedText(place), way, words));
    host.lastChild.removeAttribute("data-line");
    before = place.k;
  }
}

const NO_SOURCE = "(source not found)";

// The text of inlined code: below its call, with the indentation that it has within its own function.
function inlinedText(place) {
  const own = place.t === null ? 0 : Math.max(0, place.t.length - place.t.trimStart().length - place.i);
  return `${" ".repeat(indentOf(place) + 2 * place.k.length + own)}${place.t === null ? NO_SOURCE : place.t.trim()}`;
}

// The indentation of the function's own line: that of the place itself, or of the call that inlined it.
function indentOf(place) {
  const source = state.detail.source, line = source && source.lines && place.o !== null ? source.lines[place.o - source.first] : null;
  return line ? line[0].length - line[0].trimStart().length : 0;
}

function blockCount(blocks) {
  let most = null;
  for (const b of blocks) {
    const count = state.detail.blocks[b][0];
    if (most === null || Number(count) > Number(most)) most = count;
  }
  return most;
}

function showListing(path) {
  const host = $("listing"), d = state.detail;
  host.replaceChildren();
  state.listed = path;
  if (!path) return;
  host.append(row("edge", null, null, path.b));
  let before = [];
  for (const [number, blocks, words, way] of path.s) {
    const place = d.places[number], calls = place ? place.k : [];
    for (let depth = newCalls(before, calls); depth < calls.length;
      depth++) host.append(callRow(indentOf(place) + 2 * depth, calls[depth]));
    const text = !place ? `block ${blocks.join(", ")}` : calls.length ? inlinedText(place) : place.t === null ? NO_SOURCE : place.t;
    host.append(row(place && place.t === null ? "on blank" : "on", blockCount(blocks), place ? place.l : null, text, way, words));
    before = calls;
  }
  host.append(row("edge", null, null, path.e));
  host.scrollTop = 0;
}

function showTab(listing) {
  $("source").hidden = listing;
  $("listing").hidden = !listing;
  $("tab-source").setAttribute("aria-selected", !listing);
  $("tab-listing").setAttribute("aria-selected", listing);
}

function showBlock(number) {
  const line = state.detail.blocks[number] && state.detail.blocks[number][3];
  const found = line && $("source").querySelector(`[data-line="${line}"]`);
  if (!found) return;
  state.listing = false;
  showTab(false);
  found.scrollIntoView({ block: "center" });
  found.classList.remove("flash");
  void found.offsetWidth; // Restarts the animation.
  found.classList.add("flash");
}

// ---- graph, address, keys

const graph = new GraphView($("graph"), showBlock);

function showGraph() {
  $("graph-note").textContent = graph.show(state.detail, $("executed").checked);
}

function redrawGraph() {
  if (!state.detail) return;
  showGraph();
  const path = allPaths()[state.path];
  graph.mark(path ? path.n : [], path ? path.g : []);
  graph.reveal(path ? path.n : []);
}

// The page's address names the chosen function and path, so that the view can be bookmarked and reloaded.
function saveToAddress() {
  const path = state.detail && allPaths()[state.path];
  history.replaceState(null, "", `#f=${state.function}${path ? `&p=${path.id}` : ""}`);
}

function restoreFromAddress() {
  const words = new URLSearchParams(location.hash.slice(1)), wanted = Number(words.get("f") ?? NaN);
  if (summary.functions[wanted]) chooseFunction(wanted, words.get("p") ?? undefined);
  else if (state.list.length) chooseFunction(state.list[0]);
}

function setTheme(theme) { document.documentElement.dataset.theme = theme; }

function step(by) {
  const at = state.list.indexOf(state.function), next = state.list[Math.min(state.list.length - 1, Math.max(0, at + by))];
  if (next === undefined) return;
  const host = $("functions"), top = state.list.indexOf(next) * ROW;
  if (top < host.scrollTop || top + ROW > host.scrollTop + host.clientHeight) host.scrollTop = top - host.clientHeight / 2;
  chooseFunction(next);
}

function stepPath(by) {
  if (state.detail && allPaths().length) choosePath(Math.min(allPaths().length - 1, Math.max(0, state.path + by)));
}

const KEYS = {
  "/": () => $("search").focus(), j: () => step(1), k: () => step(-1), n: () => stepPath(1), p: () => stepPath(-1),
  f: () => $("fit").click(),
  "+": () => graph.zoom(1.3), "=": () => graph.zoom(1.3), "-": () => graph.zoom(1 / 1.3), s: () => $(state.listing ?
    "tab-source" : "tab-listing").click(),
  x: () => $("executed").click(), t: () => $("theme").click(), "?": () => $("keys").showModal(),
};

function listen() {
  $("search").addEventListener("input", (event) => { state.search = event.target.value; sortFunctions(); });
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && state.list.length) { chooseFunction(state.list[0]); event.target.blur(); }
    if (event.key === "Escape") { event.target.value = state.search = ""; sortFunctions(); event.target.blur(); }
  });
  for (const button of document.querySelectorAll("[data-sort]")) {
    button.addEventListener("click", () => {
      state.sort = button.dataset.sort;
      for (const other of document.querySelectorAll("[data-sort]")) other.setAttribute("aria-pressed", other === button);
      sortFunctions();
    });
  }
  $("functions").addEventListener("scroll", drawFunctions);
  addEventListener("resize", drawFunctions);
  $("functions").addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) { event.preventDefault(); step(by); }
  });
  $("tab-source").addEventListener("click", () => { state.listing = false; showTab(false); });
  $("tab-listing").addEventListener("click", () => {
    const path = allPaths()[state.path];
    state.listing = true;
    showTab(true);
    if (state.listed !== path) showListing(path);
  });
  $("executed").addEventListener("change", redrawGraph);
  $("fit").addEventListener("click", () => { graph.touched = true; graph.fit(); });
  $("zoom-in").addEventListener("click", () => graph.zoom(1.3));
  $("zoom-out").addEventListener("click", () => graph.zoom(1 / 1.3));
  $("help").addEventListener("click", () => $("keys").showModal());
  $("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open ||
      event.target.matches("input[type=search]") || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
showHeader();
listen();
sortFunctions();
restoreFromAddress();
