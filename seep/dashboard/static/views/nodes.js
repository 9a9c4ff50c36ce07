/** Nodes: each with its VM, its state, and the instances that it hosts; lost ones stay for a minute. */

import { natural, nodesAt, plainName } from "../cluster.js";
import { element, keyed, setAttributes, setChildren, setStyle, setText } from "../dom.js";
import { age, colourOf, count, cut, names, number } from "../format.js";

export const title = "Nodes";

/** The most nodes that are shown, and instances of one. */
const NODES = 200;
const INSTANCES = 8;
const NAME_FITS = 40;

export function mount(root, app) {
  root.className = "card";
  const told = element("span", { class: "muted" });
  const list = element("ul", { class: "nodes" });
  const more = element("p", { class: "muted" });
  root.append(element("div", { class: "head" }, element("h2", {}, "Nodes"), told), list, more);
  let drawn = null;

  function make() {
    const node = element("li", { class: "node new" });
    node.parts = {
      name: element("b"), state: element("span", { class: "muted" }), hosted: element("div", { class: "hosted" }),
    };
    node.append(element("div", { class: "who" }, node.parts.name, node.parts.state), node.parts.hosted);
    return node;
  }

  function change(item, node, model, colours) {
    const isMarked = model.selected.operator && node.instances.some(
      (each) => each.operator === model.selected.operator
    );
    setAttributes(item, { class: `node ${node.state} ${isMarked ? "highlight" : ""}` });
    setText(item.parts.name, node.vm ? `${node.name} on ${node.vm}` : node.name);
    setText(item.parts.state, stateWords(node, model.at));
    const shown = [...node.instances].sort((one, other) => natural(one.name, other.name)).slice(0, INSTANCES);
    const text = JSON.stringify([shown.map((each) => each.name), node.instances.length, node.state, node.hosted]);
    if (item.drawn === text) return;
    item.drawn = text;
    const more = node.instances.length - shown.length;
    const without = node.state === "lost" ? lostWords(node) : node.instances.length ? null : "no instance";
    const dots = shown.map((each) => instance(each, colours));
    setChildren(item.parts.hosted, dots, more > 0 ? `and ${number(more)} more` : null, without);
  }

  function instance(each, colours) {
    const dot = element("span", { class: "dot", "aria-hidden": "true" });
    setStyle(dot, "background", colours.get(each.operator));
    return element("span", {}, dot, cut(plainName(each.name), NAME_FITS));
  }

  function update(model) {
    if (drawn === model.status && list.at === model.at && list.selected === model.selected) return;
    drawn = model.status;
    Object.assign(list, { at: model.at, selected: model.selected });
    const nodes = nodesAt(model.events, model.status, model.at);
    const colours = new Map(Object.keys(model.run.operators).map((name, place) => [name, colourOf(place)]));
    setText(told, summary(nodes));
    keyed(list, nodes.slice(0, NODES), (each) => each.name, make, (item, node) => change(item, node, model, colours));
    setText(more, nodes.length > NODES ? `and ${number(nodes.length - NODES)} more nodes` : "");
  }

  return { update };
}

function stateWords({ state, at, cpu, cores }, now) {
  if (state === "lost") return `lost ${age(now - at)}`;
  if (state === "used" && cpu !== undefined) return `${number(cpu, 2)} of ${number(cores, cores % 1 ? 2 : 0)} cores`;
  return state;
}

function lostWords({ hosted, why }) {
  return `${hosted?.length ? `had ${names(hosted)}; ` : ""}${why}`;
}

function summary(nodes) {
  const many = (state) => nodes.filter((each) => each.state === state).length;
  const told = ["used", "idle", "leaving", "lost"].filter(many).map((state) => `${number(many(state))} ${state}`);
  return `${count(nodes.length - many("lost"), "node")}: ${told.join(", ")}`;
}
