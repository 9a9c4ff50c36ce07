/** Makes and changes elements. Text becomes text nodes only, so what comes from a run is never read as markup. */

const SVG = "http://www.w3.org/2000/svg";

/** Makes an HTML element: `element("p", {class: "note", on: {click: f}}, "text", node, [more], null)`. */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(node, attributes, children) {
  setAttributes(node, attributes);
  node.append(...flat(children));
  return node;
}

/** Sets attributes that differ: true is present without a value, false and null are absent; `style` has properties. */
export function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [kind, listener] of Object.entries(value)) node.addEventListener(kind, listener);
    } else if (name === "style") {
      for (const [property, each] of Object.entries(value)) setStyle(node, property, each);
    } else if (value === false || value === null || value === undefined) {
      if (node.hasAttribute(name)) node.removeAttribute(name);
    } else {
      const text = value === true ? "" : String(value);
      if (node.getAttribute(name) !== text) node.setAttribute(name, text);
    }
  }
}

export function setStyle(node, property, value) {
  const text = value === null || value === undefined ? "" : String(value);
  if (node.style.getPropertyValue(property) !== text) node.style.setProperty(property, text);
}

/** Sets the text of a node, if it is another one. */
export function setText(node, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Sets the children of a node, if they are others. */
export function setChildren(node, ...children) {
  const wanted = flat(children);
  const same = wanted.length === node.childNodes.length && wanted.every(
    (each, place) => isSame(each, node.childNodes[place])
  );
  if (!same) node.replaceChildren(...wanted);
}

function isSame(wanted, there) {
  return wanted === there || (typeof wanted === "string" && there.nodeType === Node.TEXT_NODE && there.data === wanted);
}

function flat(children) {
  const wanted = children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
  return wanted.map((each) => (each instanceof Node ? each : String(each)));
}

/**
 * Keeps one child for each item: `make(item)` makes it, `change(node, item)` brings it up to date. A child whose item
 * is gone is removed, at the end of its animation if `leaves(node)` says that it has one.
 */
export function keyed(parent, items, keyOf, make, change, leaves = () => false) {
  const known = (parent.seepChildren ??= new Map());
  const wanted = new Set();
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let node = known.get(key);
    if (node === undefined) {
      node = make(item);
      known.set(key, node);
    }
    const place = before === null ? parent.firstChild : before.nextSibling;
    if (node !== place) parent.insertBefore(node, place);
    change(node, item);
    before = node;
  }
  for (const [key, node] of known) {
    if (!wanted.has(key)) {
      known.delete(key);
      if (!leaves(node)) node.remove();
    }
  }
}

let probe = null;
const colours = new Map();

/** Returns the present value of a colour variable of the style sheet, for a canvas: `colour("--accent")`. */
export function colour(variable) {
  if (!colours.has(variable)) {
    if (probe === null) {
      probe = element("span", { hidden: true });
      document.body.append(probe);
    }
    probe.style.setProperty("color", `var(${variable})`);
    colours.set(variable, getComputedStyle(probe).color);
  }
  return colours.get(variable);
}

/** Forgets colours, because the theme has changed. */
export function forgetColours() {
  colours.clear();
}

/** Whether the user wants no movement. */
export function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
