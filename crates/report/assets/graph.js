// Draws a function's control-flow graph as SVG: pan by dragging, zoom by wheel, the chosen path in colour.

const SVG = "http://www.w3.org/2000/svg";
// In graphs with more blocks, those that were never executed are hidden.
const MAX_BLOCKS = 600;

function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

class GraphView {
  constructor(host, onBlock) {
    this.host = host;
    this.onBlock = onBlock;
    this.box = { x: 0, y: 0, k: 1 };
    host.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(Math.exp(-event.deltaY * 0.0015),
      event.offsetX, event.offsetY); }, { passive: false });
    host.addEventListener("pointerdown", (event) => this.drag(event));
    this.marked = [];
    new ResizeObserver(() => { if (!this.touched) { this.fitReadable(); this.reveal(this.marked); } }).observe(host);
  }

  // Draws the graph of a function and returns a note for the user, for example about hidden blocks.
  show(detail, executedOnly) {
    const exit = detail.blocks.length;
    const large = detail.blocks.length > MAX_BLOCKS;
    const hide = executedOnly || large;
    const keep = detail.blocks.map((b) => !hide || Number(b[0]) > 0);
    const edges = detail.edges.map((e, i) => ({ from: e[0], to: e[1], label: e[2], count: e[3], style: e[4], number: i }))
      .filter((e) => e.style !== 2 && keep[e.from] && (e.to === exit || keep[e.to]) && (!hide || Number(e.count) > 0));
    const nodes = detail.blocks.map((b, i) => ({ id: i, h: 38, w: this.nodeWidth(b, i) })).filter((n) => keep[n.id]);
    if (edges.some((e) => e.to === exit)) nodes.push({ id: exit, w: 18, h: 18 });
    if (nodes.length > 4 * MAX_BLOCKS) { this.host.replaceChildren(); return `${nodes.length} executed blocks are too many to draw`; }
    this.layout = layoutGraph(nodes, edges, 0);
    this.draw(detail, nodes, edges, exit);
    this.touched = false;
    this.fitReadable();
    const hidden = keep.filter((k) => !k).length;
    return hidden ? `${plural(hidden, "block")} never executed, hidden` :
      `${plural(detail.blocks.length, "block")}, ${plural(detail.edges.filter((e) => e[4] !== 2).length, "edge")}`;
  }

  nodeWidth(block, number) {
    const top = `B${number}  ${brief(block[0])}`, below = (block[2][0] || "") + (block[2].length > 1 ? " +" : "");
    return Math.max(84, 7 * top.length + 26, 6.2 * Math.min(below.length, 30) + 22);
  }

  draw(detail, nodes, edges, exit) {
    const hottest = Math.max(1, ...detail.blocks.map((b) => Number(b[0])));
    const marker = (id) => svg("marker", { id: `arrow-${id}`, class: id, viewBox: "0 0 8 8", refX: 7, refY: 4,
      markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse", markerUnits: "userSpaceOnUse" }, svg("path", { d: "M0 0 8 4 0 8z" }));
    this.world = svg("g");
    this.edges = new Map();
    this.nodes = new Map();
    edges.forEach((e, i) => this.world.append(this.drawEdge(e, this.layout.edges[i])));
    for (const n of nodes) this.world.append(n.id === exit ? this.drawExit(n) : this.drawNode(n, detail.blocks[n.id], hottest));
    this.host.replaceChildren(svg("svg", { role: "img", "aria-label": "control-flow graph" },
      svg("defs", {}, marker("usual"), marker("on"), marker("never")), this.world));
  }

  drawEdge(e, points) {
    const path = svg("path", { d: smooth(points), "marker-end": "url(#arrow-usual)" });
    const never = Number(e.count) === 0;
    const group = svg("g", { class: `edge${never ? " never" : ""}${e.style === 1 ? " cut" : ""}`, "data-edge": e.number }, path);
    if (never) path.setAttribute("marker-end", "url(#arrow-never)");
    const before = points[(points.length >> 1) - 1], after = points[points.length >> 1];
    const middle = { x: (before.x + after.x) / 2, y: (before.y + after.y) / 2 };
    const text = svg("text", { x: middle.x, y: middle.y + 3 });
    text.textContent = `${e.label} ${brief(e.count)}`.trim();
    group.append(text, title(`${plural(e.count, "time")}${e.style === 1 ? "; paths are cut here" : ""}`));
    this.edges.set(e.number, group);
    return group;
  }

  drawNode(n, block, hottest) {
    const at = this.layout.nodes.get(n.id), [count, instructions, lines] = block;
    const group = svg("g", { class: `node${Number(count) === 0 ? " never" : ""}`, "data-block": n.id,
      transform: `translate(${at.x - n.w / 2} ${at.y - n.h / 2})` });
    const heat = Number(count) > 0 ? Math.max(0.04, Math.log1p(Number(count)) / Math.log1p(hottest)) : 0;
    group.append(svg("rect", { class: "box", width: n.w, height: n.h, rx: 6 }),
      svg("rect", { class: "heat", x: 1, y: n.h - 4, width: Math.max(0, (n.w - 2) * heat), height: 3, rx: 1.5 }));
    const name = svg("text", { x: 8, y: 15 }), cnt = svg("text", { x: n.w - 8, y: 15, class: "cnt" }),
      sub = svg("text", { x: 8, y: 29, class: "sub" });
    name.textContent = `B${n.id}`;
    cnt.textContent = brief(count);
    const below = (lines[0] || `${instructions} instr.`) + (lines.length > 1 ? " +" : "");
    sub.textContent = below.length > 30 ? `…${below.slice(-29)}` : below;
    const executed = `executed ${plural(full(count), "time")}, ${plural(instructions, "instruction")}`;
    group.append(name, cnt, sub, title(`block ${n.id}: ${executed}\n${lines.join("\n")}`));
    group.addEventListener("click", () => { if (!this.moved) this.onBlock(n.id); });
    this.nodes.set(n.id, group);
    return group;
  }

  drawExit(n) {
    const at = this.layout.nodes.get(n.id);
    const group = svg("g", { class: "node exit", "data-block": "exit", transform: `translate(${at.x} ${at.y})` },
      svg("circle", { r: 8 }), svg("circle", { r: 3.5, class: "dot" }), title("exit"));
    this.nodes.set(n.id, group);
    return group;
  }

  mark(blocks, edges) {
    this.marked = blocks;
    if (!this.nodes) return;
    const on = new Set(blocks), taken = new Set(edges);
    for (const [id, node] of this.nodes) node.classList.toggle("on", on.has(id));
    for (const [id, edge] of this.edges) {
      const is = taken.has(id);
      edge.classList.toggle("on", is);
      edge.querySelector("path").setAttribute("marker-end",
        `url(#arrow-${is ? "on" : edge.classList.contains("never") ? "never" : "usual"})`);
      if (is) edge.parentNode.insertBefore(edge, this.world.querySelector(".node"));
    }
  }

  // Scrolls to the first of these blocks if none of them is visible.
  reveal(blocks) {
    const places = this.layout ? blocks.map((b) => this.layout.nodes.get(b)).filter(Boolean) : [], { x, y, k } = this.box;
    const seen = (n) => n.x * k + x > 0 && n.x * k + x < this.host.clientWidth && n.y * k + y > 0 && n.y * k + y < this.host.clientHeight;
    if (!places.length || places.some(seen)) return;
    this.box.x = this.host.clientWidth / 2 - places[0].x * k;
    this.box.y = 60 - places[0].y * k;
    this.apply();
  }

  // The scale at which the whole drawing is visible.
  whole() {
    return Math.min(1.25, (this.host.clientWidth - 30) / this.layout.width, (this.host.clientHeight - 30) / this.layout.height);
  }

  // Shows the whole drawing.
  fit() {
    if (!this.layout || !this.host.clientWidth) return;
    const w = this.host.clientWidth, h = this.host.clientHeight, k = this.whole();
    this.box = { k, x: (w - this.layout.width * k) / 2, y: Math.max(15, (h - this.layout.height * k) / 2) };
    this.apply();
  }

  // Shows the whole drawing if its text can be read then, otherwise its top.
  fitReadable() {
    if (!this.layout || !this.host.clientWidth) return;
    if (this.whole() >= 0.5) { this.fit(); return; }
    const k = 0.62, entry = this.layout.nodes.get(0), centre = entry ? entry.x : this.layout.width / 2;
    this.box = { k, x: this.host.clientWidth / 2 - centre * k, y: 15 };
    this.apply();
  }

  zoom(factor, x, y) {
    const k = Math.min(4, Math.max(0.01, this.box.k * factor));
    const at = { x: x === undefined ? this.host.clientWidth / 2 : x, y: y === undefined ? this.host.clientHeight / 2 : y };
    this.box.x = at.x - (at.x - this.box.x) * k / this.box.k;
    this.box.y = at.y - (at.y - this.box.y) * k / this.box.k;
    this.box.k = k;
    this.touched = true;
    this.apply();
  }

  drag(event) {
    if (event.button !== 0) return;
    const start = { x: event.clientX - this.box.x, y: event.clientY - this.box.y, cx: event.clientX, cy: event.clientY };
    this.moved = false;
    const move = (e) => {
      if (Math.hypot(e.clientX - start.cx, e.clientY - start.cy) > 3) { this.moved = true; this.touched = true;
        this.host.classList.add("moving"); }
      if (this.moved) { this.box.x = e.clientX - start.x; this.box.y = e.clientY - start.y; this.apply(); }
    };
    const stop = () => { this.host.classList.remove("moving"); removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  }

  apply() { if (this.world) this.world.setAttribute("transform", `translate(${this.box.x} ${this.box.y}) scale(${this.box.k})`); }
}

function title(text) {
  const element = svg("title");
  element.textContent = text;
  return element;
}

// A curve that leaves its first point and enters its last vertically; upward edges are polylines with rounded corners.
function smooth(points) {
  if (points.upward) return rounded(points, 10);
  let d = `M${points[0].x} ${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1], b = points[i], bend = (b.y - a.y) / 2;
    d += `C${a.x} ${a.y + bend} ${b.x} ${b.y - bend} ${b.x} ${b.y}`;
  }
  return d;
}

function rounded(points, radius) {
  let d = `M${points[0].x} ${points[0].y}`;
  const toward = (a, b) => {
    const far = Math.hypot(b.x - a.x, b.y - a.y) || 1, part = Math.min(radius, far / 2) / far;
    return `${a.x + (b.x - a.x) * part} ${a.y + (b.y - a.y) * part}`;
  };
  for (let i = 1; i + 1 < points.length;
    i++) d += `L${toward(points[i], points[i - 1])}Q${points[i].x} ${points[i].y} ${toward(points[i], points[i + 1])}`;
  const last = points[points.length - 1];
  return `${d}L${last.x} ${last.y}`;
}
