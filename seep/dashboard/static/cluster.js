/** The nodes of a run at a moment, with their VMs and instances, by its events and status. */

import { identityOf } from "./past.js";

/** Seconds for which a lost node is shown. */
const SHOWN = 60;
const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Returns the nodes: {name, vm, state, at, instances, cpu, cores}; `state` is used, idle, leaving or lost. */
export function nodesAt(events, status, at) {
  const nodes = new Map();
  const vms = new Map();
  const add = (name, since) => nodes.set(name, { name, vm: null, state: "idle", at: since, instances: [], why: "" });
  for (const event of events) {
    if (event.at > at) break;
    const node = nodes.get(event.node);
    if (event.kind === "node joined") add(event.node, event.at);
    else if (event.kind === "vm ready") event.nodes?.forEach((name) => vms.set(name, event.vm));
    else if (event.kind === "node leaving" && node) node.state = "leaving";
    else if (event.kind === "node lost" && node) Object.assign(
      node, { state: "lost", at: event.at, why: event.why ?? event.detail ?? "", hosted: event.hosted },
    );
    else if (event.kind === "killed" && node) Object.assign(
      node, { state: "lost", at: event.at, why: "killed on purpose", hosted: event.hosted },
    );
    else if (event.kind === "vm released") for (const [name, vm] of vms) if (vm === event.vm) nodes.delete(name);
  }
  for (const host of status?.hosts ?? []) {
    const node = nodes.get(host.name) ?? add(host.name, at).get(host.name);
    Object.assign(node, { cpu: host.cpu, cores: host.cores });
    if (host.state === "leaving" && node.state !== "lost") node.state = "leaving";
  }
  for (const each of status?.instances ?? []) {
    const node = nodes.get(each.node) ?? add(each.node, at).get(each.node);
    if (node.state === "lost") continue;
    if (node.state === "idle") node.state = "used";
    node.instances.push(each);
  }
  for (const node of nodes.values()) node.vm = vms.get(node.name) ?? null;
  const shown = [...nodes.values()].filter((each) => each.state !== "lost" || at - each.at < SHOWN);
  return shown.sort((one, other) => rank(one) - rank(other) || natural(one.name, other.name));
}

function rank({ state }) {
  return ["used", "leaving", "idle", "lost"].indexOf(state);
}

/** Orders "n2" before "n10". */
export function natural(one, other) {
  return COLLATOR.compare(one, other);
}

/** The name of an instance without its incarnation. */
export function plainName(name) {
  return identityOf(name).name;
}
