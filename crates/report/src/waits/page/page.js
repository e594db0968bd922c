"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const get = (id) => document.getElementById(id);
const time = (ns) => ns < 1e3 ? `${ns} ns` : ns < 1e6 ? `${fixed(ns / 1e3, 1)} us` : ns < 1e9 ?
  `${fixed(ns / 1e6, 1)} ms` : `${fixed(ns / 1e9, 3)} s`;
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;
const percent = (part, all) => all ? `${fixed(100 * part / all, 1)} %` : "";
const make = (tag, text, kind) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind; return e; };
const place = (p) => p.file ? ` (${p.file.split("/").pop()}${p.line ? ":" + p.line : ""})` : "";
const taken = (s) => !s.path ? "" : s.path.function === s.function ? `, path ${s.path.lines}` :
  `, path of ${s.path.function} ${s.path.lines}`;
const stepName = (s) => s.state !== "computing" ? `${s.call ? `${s.call} in ` : ""}${s.function}${place(s)}, ${s.state}` :
  `${s.function}${place(s)}${s.stack.length > 1 ? ` in ${s.stack[s.stack.length - 2]}` : ""}${taken(s)}`;
const callers = (c) => c.callers.length < 2 ? (c.caller ? " in " + c.caller : "") :
  " in " + c.callers.slice(0, 3).map((by) => `${by.function} (${fixed(100 * by.ns / c.ns, 0)} %)`).join(", ") +
  (c.callers.length > 3 ? ` and ${c.callers.length - 3} more` : "");
const row = (cells) => {
  const tr = make("tr"); cells.forEach((c) => { const td = make("td"); if (c instanceof Node) td.append(c); else {
  td.textContent = c; if (/^[\d.]+ (n|u|m)?s$|%$/.test(c)) td.className = "n"; } tr.append(td); }); return tr; };
const bar = (part) => { const b = make("span", "", "bar"); b.style.width = `${Math.max(1, 160 * part)}px`; return b; };

get("title").textContent = data.title;
get("headline").textContent =
  `${time(data.run_ns)} on ${plural(data.locations.length, "location")}, ${plural(data.calls, "call")}; ` +
  `${plural(data.wait_occurrences, "wait")} totalling ${time(data.wait_ns)} ` +
  `(${percent(data.wait_ns, data.run_ns * data.locations.length) || "0.0 %"} of all locations' time)`;
/* A table's or list's section is visible only if there is something in it. */
const fill = (id, children) => { get(id).replaceChildren(...children); const section = get(id).closest("section");
  if (section) section.hidden = !children.length; };
const causes = (all) => all.map((c) => row([time(c.ns), percent(c.ns, data.wait_ns), bar(c.ns / (data.wait_ns || 1)),
  `${c.function}${place(c)}${callers(c)} on ${c.location}${c.state === "computing" ? "" : ", " + c.state}`]));
fill("kinds", data.kinds.map((k) => row([time(k.wait_ns), percent(k.wait_ns, data.wait_ns),
  `${k.kind} (${k.family}), ${plural(k.occurrences, "time")}`])));
fill("causes", data.waits.length ? causes(data.causes.slice(0, 15)) : [row(["No location waits."])]);
fill("communication", causes(data.communication.slice(0, 15)));
fill("critical", data.critical_path.slice(0, 15).map((c) => row([time(c.ns), percent(c.ns, data.run_ns), bar(c.ns / (data.run_ns || 1)),
  c.code])));
fill("imbalance", (data.locations.length > 1 ? data.imbalance : []).filter((i) => i.most_ns > i.mean_ns).slice(0, 15).map((i) =>
  row([time(i.most_ns - i.mean_ns), `${i.function} on ${i.location}: ${time(i.most_ns)}, mean of all ${time(i.mean_ns)}`])));
fill("answers", data.what_if.map((w) => make("li",
  `If ${w.function} took ${w.percent_less} % less, the run would take ${time(w.run_ns)} instead of ${time(data.run_ns)}`)));
const classes = data.waits.reduce((sum, w) => sum + w.classes.length, 0);
get("thresholds").textContent = "Waits with similar causes form a class: " +
  `${classes} ${classes === 1 ? "class" : "classes"} at threshold ${data.threshold} ` +
  `(${data.classes_at_other_thresholds.map((c) => `${c.classes} at ${c.threshold}`).join(", ")})`;

/* Wait sites by family. */
let family = null;
function showSites() {
  get("families").replaceChildren(...[null, "imbalance", "contention", "communication"].map((name) => {
    const of = data.waits.filter((w) => !name || w.family === name);
    const button = make("button", `${name || "all"} ${time(of.reduce((s, w) => s + w.total_ns, 0))}`);
    button.dataset.family = name || "all";
    button.setAttribute("aria-pressed", family === name);
    button.onclick = () => { family = name; showSites(); };
    return button;
  }));
  get("sites").replaceChildren(...data.waits.filter((w) => !family || w.family === family).slice(0, 40).map((w) => {
    const button = make("button",
      `${time(w.total_ns)}  ${percent(w.total_ns, data.wait_ns)}  ${w.site.call || "wait"} in ` +
      `${w.site.function}${place(w.site)}: ${w.kind}, ${plural(w.occurrences, "time")}`, "site");
    button.onclick = () => { document.querySelectorAll(".site").forEach((s) => s.removeAttribute("aria-current"));
      button.setAttribute("aria-current", true); showSite(w); };
    return button;
  }));
}
function pathTable(title, steps, all) {
  const div = make("div"), table = make("table");
  div.append(make("h3", title), table);
  steps.slice(0, 12).forEach((s) => table.append(row([time(s.ns), percent(s.ns, all), `${stepName(s)} on ${s.location}`])));
  if (steps.length > 12) div.append(make("p", `${steps.length - 12} more ${steps.length == 13 ? "step" : "steps"}`, "hint"));
  if (!steps.length) div.append(make("p", "nothing", "hint"));
  return div;
}
function showSite(w) {
  get("detail").hidden = false;
  get("site").textContent = `${w.site.call || "wait"} in ${w.site.function}${place(w.site)}`;
  get("classes").replaceChildren(...w.classes.map((c) => {
    const div = make("div", undefined, "class"), paths = make("div", undefined, "paths");
    const show = make("button", "show the longest on the timeline");
    show.onclick = () => select(c.longest.location_index, c.longest.enter_ns, c.max_ns, c);
    div.append(make("p", `${plural(c.occurrences, "time")}, ${time(c.wait_ns)} (${time(c.min_ns)} to ${time(c.max_ns)}): ` +
      `${c.locations.slice(0, 6).join(", ")}${c.locations.length > 6 ? " and more" : ""} `), show, paths);
    div.append(make("p", `First: ${data.locations[c.representative.location_index].location}, ${time(c.representative.wait_ns)} = ` +
      `${c.representative.expression}${c.occurrences > 1 ? `; distances from it ${fixed(c.distance.mean, 3)} on average, ` +
      `at most ${fixed(c.distance.max, 3)}` : ""}`, "hint expression"));
    paths.append(pathTable("executed (longer path)", c.plus, c.wait_ns), pathTable("instead of (shorter path)", c.minus, c.wait_ns));
    if (c.left_out_ns.plus + c.left_out_ns.minus > 0) div.append(make("p",
      `Not shown: code that both executed, ${time(c.left_out_ns.plus)} and ${time(c.left_out_ns.minus)}`, "hint"));
    return div;
  }));
  const longest = w.classes.reduce((a, b) => a.max_ns >= b.max_ns ? a : b);
  select(longest.longest.location_index, longest.longest.enter_ns, longest.max_ns, longest);
}

/* Timeline. */
const canvas = get("timeline"), draw2d = canvas.getContext("2d");
const names = data.locations.map((l) => l.location), bars = data.timeline.bars;
let view = [0, data.run_ns || 1], chosen = null;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const left = 110;
function draw() {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, rows = names.length;
  const height = Math.min(900, Math.max(120, 22 * rows + 20));
  canvas.style.height = `${height}px`;
  canvas.width = width * scale; canvas.height = height * scale;
  draw2d.setTransform(scale, 0, 0, scale, 0, 0);
  draw2d.clearRect(0, 0, width, height);
  const step = (height - 20) / rows, x = (ns) => left + (ns - view[0]) / (view[1] - view[0]) * (width - left);
  draw2d.font = "12px system-ui"; draw2d.textBaseline = "middle";
  const fill = [colour("--k0"), colour("--k1"), colour("--k2")];
  for (const [location, from, ns, kind, , fn] of bars) {
    if (from > view[1] || from + ns < view[0]) continue;
    const a = Math.max(left, x(from)), b = Math.min(width, x(from + ns)), y = location * step;
    draw2d.globalAlpha = chosen && !inPaths(location, from, ns, kind, fn) ? 0.25 : 1;
    draw2d.fillStyle = fill[kind];
    draw2d.fillRect(a, y + 2, Math.max(0.5, b - a), step - 4);
    const side = chosen && inPaths(location, from, ns, kind, fn);
    if (side && side !== "wait") { draw2d.fillStyle = colour(side === "plus" ? "--plus" : "--minus");
      draw2d.fillRect(a, y + step - 5, Math.max(0.5, b - a), 3); }
  }
  draw2d.globalAlpha = 1; draw2d.fillStyle = colour("--text");
  names.forEach((name, i) => draw2d.fillText(name, 4, i * step + step / 2, left - 8));
  draw2d.fillText(time(Math.round(view[0])), left, height - 8); draw2d.textAlign = "right";
  draw2d.fillText(time(Math.round(view[1])), width - 4, height - 8); draw2d.textAlign = "left";
}
function inPaths(location, from, ns, kind, fn) {
  if (location === chosen.location && from <= chosen.enter && from + ns > chosen.enter) return "wait";
  if (from + ns <= chosen.since || from >= chosen.enter + chosen.ns) return null;
  if (chosen.plus.has(`${location}:${fn}`)) return "plus";
  return chosen.minus.has(`${location}:${fn}`) ? "minus" : null;
}
function select(location, enter, ns, c) {
  const set = (steps) => new Set(steps.map((s) => `${s.location_index}:${s.function}`));
  const since = Math.max(0, enter - c.longest.minus_ns);
  chosen = { location, enter, ns, since, plus: set(c.plus), minus: set(c.minus) };
  const margin = (enter + ns - since) * 0.1;
  view = [Math.max(0, since - margin), enter + ns + margin];
  get("at").textContent = `${names[location]} waits ${time(ns)} at ${time(enter)}`;
  draw();
}
canvas.onwheel = (e) => {
  e.preventDefault();
  const at = view[0] + (e.offsetX - left) / (canvas.clientWidth - left) * (view[1] - view[0]), by = e.deltaY > 0 ? 1.25 : 0.8;
  view = [Math.max(0, at - (at - view[0]) * by), Math.min(data.run_ns, at + (view[1] - at) * by)];
  draw();
};
canvas.onkeydown = (e) => {
  const span = view[1] - view[0], move = { ArrowLeft: -0.2, ArrowRight: 0.2 }[e.key], by = { "+": 0.8, "=": 0.8, "-": 1.25 }[e.key];
  if (!move && !by) return;
  e.preventDefault();
  const middle = (view[0] + view[1]) / 2;
  view = move ? [view[0] + move * span, view[1] + move * span] :
    [Math.max(0, middle - span * by / 2), Math.min(data.run_ns, middle + span * by / 2)];
  draw();
};
let drag = null;
canvas.onpointerdown = (e) => { drag = { x: e.offsetX, view: [...view], moved: false }; canvas.setPointerCapture(e.pointerId); };
canvas.onpointermove = (e) => {
  if (!drag) return;
  const by = (drag.x - e.offsetX) / (canvas.clientWidth - left) * (view[1] - view[0]);
  if (Math.abs(drag.x - e.offsetX) > 3) drag.moved = true;
  if (drag.moved) { view = [drag.view[0] + by, drag.view[1] + by]; draw(); }
};
canvas.onpointerup = (e) => {
  const clicked = drag && !drag.moved; drag = null;
  if (!clicked) return;
  const location = Math.floor(e.offsetY / ((canvas.clientHeight - 20) / names.length));
  const at = view[0] + (e.offsetX - left) / (canvas.clientWidth - left) * (view[1] - view[0]);
  const hit = bars.find((b) => b[0] === location && b[3] === 2 && b[1] <= at && b[1] + b[2] >= at);
  if (!hit) return;
  const site = data.waits.find((w) => w.site.call === hit[4] && w.site.function === hit[5]);
  if (site) { showSite(site); const c = site.classes.find((k) => k.locations.includes(names[location])) ||
    site.classes[0]; select(location, hit[1], hit[2], c); }
};
get("whole").onclick = () => { view = [0, data.run_ns]; chosen = null; get("at").textContent = ""; draw(); };
window.onresize = draw;

/* Source. */
/* Files that were found come first. */
get("source").replaceChildren(...[...data.source].sort((a, b) => Boolean(a.missing) - Boolean(b.missing)).map((f) => {
  const div = make("div"); div.append(make("h3", f.file + (f.missing ? " (not found)" : "")));
  f.lines.forEach(([number, text, ns]) => { const r = make("div", undefined, ns ? "row hot" : "row");
    r.append(make("span", ns ? percent(ns, data.wait_ns) : ""), make("span", number), make("span", text));
    if (ns) r.title = time(ns); r.style.opacity = ns ? 1 : 0.75; div.append(r); });
  return div;
}));
fill("notes", data.notes.map((n) => make("li", n)));
showSites(); draw();
