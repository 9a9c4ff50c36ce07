/** Overview: is it healthy, what happened in short, the execution graph, timelines, and the changes. */

import { element } from "../dom.js";
import * as changes from "./changes.js";
import * as graph from "./graph.js";
import * as health from "./health.js";
import * as nodes from "./nodes.js";
import * as short from "./short.js";
import * as timeline from "./timeline.js";

export const title = "Overview";

export function mount(root, app) {
  const parts = [health, short, graph, nodes, timeline, changes].map((part) => {
    const section = element("section", { "aria-label": part.title });
    root.append(section);
    return part.mount(section, app);
  });
  return { update: (model) => parts.forEach((part) => part.update(model)) };
}
