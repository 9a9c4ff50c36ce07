/** Lays out a query: operators in layers from the sources to the sinks, as seep/reports/graph.py does. */

const SWEEPS = 4;

/** Returns the operators in layers: each stands behind all that feed it. `order` is the order of flow. */
export function layersOf(order, edges) {
  const depth = new Map();
  for (const name of order) {
    const before = edges.filter(([, downstream]) => downstream === name).map(([upstream]) => depth.get(upstream) ?? -1);
    depth.set(name, Math.max(0, ...before.map((each) => each + 1)));
  }
  const layers = Array.from({ length: Math.max(-1, ...depth.values()) + 1 }, () => []);
  for (const [name, place] of depth) layers[place].push({ key: name, name });
  return { layers, depth };
}

/** Returns layers with waypoints for edges that pass layers by, and the way of each edge: keys from layer to layer. */
export function routed(order, edges) {
  const { layers, depth } = layersOf(order, edges);
  const ways = [];
  const seen = new Set();
  for (const [upstream, downstream] of edges) {
    const id = JSON.stringify([upstream, downstream]);
    if (seen.has(id)) continue;
    seen.add(id);
    const way = [upstream];
    for (let place = depth.get(upstream) + 1; place < depth.get(downstream); place += 1) {
      const key = JSON.stringify([upstream, downstream, place]);
      layers[place].push({ key, name: null });
      way.push(key);
    }
    ways.push({ id, upstream, downstream, way: [...way, downstream] });
  }
  sortLayers(layers, ways);
  return { layers, ways };
}

/** Puts each layer in the order of its neighbours, so that few edges cross. */
function sortLayers(layers, ways) {
  const before = new Map();
  const after = new Map();
  for (const { way } of ways) {
    for (let place = 1; place < way.length; place += 1) {
      push(before, way[place], way[place - 1]);
      push(after, way[place - 1], way[place]);
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (let place = 1; place < layers.length; place += 1) sortBy(layers[place], layers[place - 1], before);
    for (let place = layers.length - 2; place >= 0; place -= 1) sortBy(layers[place], layers[place + 1], after);
  }
}

function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}

function sortBy(layer, beside, neighbours) {
  const places = new Map(beside.map((each, place) => [each.key, place]));
  const middle = new Map(layer.map((each, place) => {
    const known = (neighbours.get(each.key) ?? []).map((key) => places.get(key)).filter((found) => found !== undefined);
    return [each.key, known.length ? known.reduce((sum, found) => sum + found, 0) / known.length : place];
  }));
  layer.sort((one, other) => middle.get(one.key) - middle.get(other.key));
}
