// Layered drawing of a control-flow graph, after Sugiyama, Tagawa and Toda (1981): edges that close cycles are reversed, nodes are
// assigned to layers by longest path, edges that span several layers get waypoints, layers are ordered to reduce crossings, and x
// coordinates follow the medians of neighbours.
//
// Input: nodes [{id, w, h}], edges [{from, to}] with nodes by id, entry id.
// Output: {nodes: Map id -> {x, y, w, h}, edges: [[{x, y}, ...]], width, height}.

function layoutGraph(nodes, edges, entry) {
  const GAP_X = 26, GAP_Y = 36;
  const items = new Map(nodes.map((n) => [n.id, { ...n, out: [], into: [], layer: 0 }]));
  const reversed = findReversed(items, edges, entry);
  const real = edges.map((e, i) => ({ ...e, i, reversed: reversed.has(i), a: reversed.has(i) ? e.to : e.from,
    b: reversed.has(i) ? e.from : e.to }));
  assignLayers(items, real.filter((e) => e.from !== e.to));
  const { layers, chains } = addWaypoints(items, real);
  orderLayers(layers);
  placeX(layers, GAP_X);
  let y = 0;
  for (const layer of layers) {
    const height = Math.max(...layer.map((n) => n.h));
    for (const n of layer) n.y = y + height / 2;
    y += height + GAP_Y;
  }
  const all = layers.flat();
  const left = Math.min(...all.map((n) => n.x - n.w / 2)) - 30;
  for (const n of all) n.x -= left;
  return {
    nodes: new Map(nodes.map((n) => [n.id, items.get(n.id)])),
    edges: real.map((e) => routeEdge(e, items, chains.get(e.i))),
    width: Math.max(...all.map((n) => n.x + n.w / 2)) + 46,
    height: y - GAP_Y,
  };
}

// Returns the numbers of the edges that lead to an open node in a depth-first search.
function findReversed(items, edges, entry) {
  const out = new Map([...items.keys()].map((id) => [id, []]));
  edges.forEach((e, i) => { if (e.from !== e.to) out.get(e.from).push(i); });
  const state = new Map(), reversed = new Set();
  for (const root of [entry, ...items.keys()]) {
    if (!items.has(root) || state.has(root)) continue;
    const stack = [[root, 0]];
    state.set(root, 1);
    while (stack.length) {
      const top = stack[stack.length - 1], next = out.get(top[0])[top[1]++];
      if (next === undefined) { state.set(top[0], 2); stack.pop(); continue; }
      const to = edges[next].to;
      if (state.get(to) === 1) reversed.add(next);
      else if (!state.has(to)) { state.set(to, 1); stack.push([to, 0]); }
    }
  }
  return reversed;
}

function assignLayers(items, edges) {
  const degree = new Map([...items.keys()].map((id) => [id, 0])), out = new Map([...items.keys()].map((id) => [id, []]));
  for (const e of edges) { degree.set(e.b, degree.get(e.b) + 1); out.get(e.a).push(e.b); }
  const ready = [...items.keys()].filter((id) => degree.get(id) === 0);
  while (ready.length) {
    const id = ready.shift();
    for (const to of out.get(id)) {
      items.get(to).layer = Math.max(items.get(to).layer, items.get(id).layer + 1);
      degree.set(to, degree.get(to) - 1);
      if (degree.get(to) === 0) ready.push(to);
    }
  }
}

function addWaypoints(items, edges) {
  const depth = Math.max(...[...items.values()].map((n) => n.layer)) + 1;
  const layers = Array.from({ length: depth }, () => []);
  for (const n of items.values()) layers[n.layer].push(n);
  const chains = new Map();
  for (const e of edges) {
    if (e.from === e.to) continue;
    const a = items.get(e.a), b = items.get(e.b), chain = [a];
    for (let layer = a.layer + 1; layer < b.layer; layer++) {
      const point = { id: null, w: 10, h: 10, layer, out: [], into: [] };
      layers[layer].push(point);
      chain.push(point);
    }
    chain.push(b);
    for (let i = 1; i < chain.length; i++) { chain[i - 1].out.push(chain[i]); chain[i].into.push(chain[i - 1]); }
    chains.set(e.i, chain);
  }
  return { layers, chains };
}

function orderLayers(layers) {
  const number = (layer) => layer.forEach((n, i) => { n.at = i; });
  layers.forEach(number);
  let best = crossings(layers), kept = layers.map((l) => [...l]);
  for (let round = 0; round < 12 && best > 0; round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const n of layer) {
        const near = down ? n.into : n.out;
        n.key = near.length ? near.reduce((sum, m) => sum + m.at, 0) / near.length : n.at;
      }
      layer.sort((p, q) => p.key - q.key || p.at - q.at);
      number(layer);
    }
    const now = crossings(layers);
    if (now < best) { best = now; kept = layers.map((l) => [...l]); }
  }
  kept.forEach((layer, i) => { layers[i] = layer; number(layer); });
}

// Crossings between neighbouring layers: inversions, counted by a binary indexed tree.
function crossings(layers) {
  let total = 0;
  for (let i = 0; i + 1 < layers.length; i++) {
    const size = layers[i + 1].length + 1, tree = new Uint32Array(size + 1);
    let seen = 0;
    for (const n of layers[i]) {
      const ends = n.out.map((m) => m.at).sort((p, q) => p - q);
      for (const end of ends) {
        let below = 0;
        for (let k = end + 1; k > 0; k -= k & -k) below += tree[k];
        total += seen - below;
      }
      for (const end of ends) { seen++; for (let k = end + 1; k <= size; k += k & -k) tree[k]++; }
    }
  }
  return total;
}

function placeX(layers, gap) {
  for (const layer of layers) {
    let x = 0;
    for (const n of layer) { n.x = x + n.w / 2; x += n.w + gap; }
    for (const n of layer) n.x -= x / 2;
  }
  for (let round = 0; round < 16; round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const n of layer) {
        const near = (down ? n.into : n.out).map((m) => m.x).sort((p, q) => p - q);
        const other = (down ? n.out : n.into).map((m) => m.x);
        const half = near.length >> 1;
        n.want = near.length ? (near.length % 2 ? near[half] : (near[half - 1] + near[half]) / 2) : other.length ?
          other.reduce((s, v) => s + v, 0) / other.length : n.x;
        // Neighbouring waypoints keep long edges straight.
        n.weight = n.id === null ? ((down ? n.into : n.out)[0].id === null ? 6 : 1) : Math.max(1, near.length);
      }
      relax(layer, gap);
    }
  }
}

// Moves each node as close as possible to the x it wants, without overlap or change of order: groups that would overlap are merged and
// share their weighted mean.
function relax(layer, gap) {
  const groups = [];
  let offset = 0;
  layer.forEach((n, i) => {
    if (i > 0) offset += layer[i - 1].w / 2 + gap + n.w / 2;
    n.offset = offset;
    let group = { sum: (n.want - offset) * n.weight, weight: n.weight, nodes: [n] };
    while (groups.length && groups[groups.length - 1].sum / groups[groups.length - 1].weight > group.sum / group.weight) {
      const before = groups.pop();
      group = { sum: before.sum + group.sum, weight: before.weight + group.weight, nodes: [...before.nodes, ...group.nodes] };
    }
    groups.push(group);
  });
  for (const g of groups) for (const n of g.nodes) n.x = g.sum / g.weight + n.offset;
}

function routeEdge(e, items, chain) {
  const from = items.get(e.from), to = items.get(e.to);
  const bottom = (n) => n.y + n.h / 2, top = (n) => n.y - n.h / 2;
  const upwards = (points) => Object.assign(points, { upward: true });
  if (e.from === e.to) {
    const x = from.x + from.w / 2;
    return upwards([{ x: x - 12, y: bottom(from) }, { x: x - 12, y: bottom(from) + 12 }, {
      x: x + 12, y: bottom(from) + 12 }, { x: x + 12, y: top(from) - 12 }, { x: x - 12, y: top(from) - 12 }, { x: x - 12, y: top(from) }]);
  }
  const inner = chain.slice(1, -1).map((n) => ({ x: n.x, y: n.y }));
  if (!e.reversed) {
    return [{ x: port(from, from.out, chain[1]), y: bottom(from) }, ...inner, {
      x: port(to, to.into, chain[chain.length - 2]), y: top(to) }];
  }
  // A reversed edge runs upwards: out at the bottom, round the side, in at the top.
  inner.reverse();
  const side = inner.length ? Math.sign(inner[0].x - from.x) || 1 : 1;
  const start = { x: from.x + side * from.w * 0.32, y: bottom(from) }, end = { x: to.x + side * to.w * 0.32, y: top(to) };
  const reach = Math.max(from.x + from.w / 2, to.x + to.w / 2) + 14;
  const out = inner.length ? inner[0].x : reach, back = inner.length ? inner[inner.length - 1].x : reach;
  const clear = (n, x) => Math.abs(x - n.x) > n.w / 2 + 6 ? x : n.x + side * (n.w / 2 + 12);
  return upwards([start, { x: start.x, y: start.y + 13 }, { x: clear(from, out), y: start.y + 13 }, {
    x: clear(from, out), y: top(from) }, ...inner, { x: clear(to, back), y: bottom(to) }, {
    x: clear(to, back), y: end.y - 13 }, { x: end.x, y: end.y - 13 }, end]);
}

// The x coordinate at which an edge leaves or enters a node: edges are spread over its width in the order of the neighbours.
function port(node, neighbours, next) {
  const order = [...neighbours].sort((p, q) => p.x - q.x), place = order.indexOf(next);
  return node.x + node.w * 0.5 * ((place + 1) / (order.length + 1) * 2 - 1) * 0.8;
}
