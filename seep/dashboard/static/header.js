/** The header: which run this is, in which phase, whether the page hears from it, its actions, and the theme. */

import { element, forgetColours, setAttributes, setText } from "./dom.js";
import { moment } from "./format.js";

const THEMES = ["system", "dark", "light"];
const SIGNS = { system: "◐", dark: "☾", light: "☀" };
const PHASES = {
  starting: ["warn", "starting"], running: ["good", "running"], finished: ["good", "finished"], halted: [
    "warn", "stopped before the end of its input",
  ],
  failed: ["bad", "failed"], stopped: ["warn", "stopped"], ended: ["warn", "ended"],
};
const STORED = "seep-theme";

export function makeHeader(root, app, parts) {
  const run = app.store.model.run;
  const phase = element("span", { class: "badge" });
  const connection = element("span", { class: "connection", role: "status" });
  const theme = element("button", { type: "button", class: "button quiet", on: { click: nextTheme } });
  const actions = element("div", { id: "actions", class: "actions" });
  const logOut = element("button", { type: "button", class: "button quiet", on: { click: app.api.logOut } }, "Log out");
  root.append(
    element(
      "div", { class: "title" }, element("h1", { title: run.query }, run.query), phase,
      element("span", { class: "muted run-id" }, `run ${run.id}`), connection,
    ),
    actions,
    run.csrf ? logOut : "",
    theme,
  );
  const mounted = parts.map((part) => part.mount(actions, app));
  setTheme(localStorage.getItem(STORED) ?? "system");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

  function repaint() {
    forgetColours();
    app.store.changed();
  }

  function setTheme(name) {
    const chosen = THEMES.includes(name) ? name : "system";
    setAttributes(document.documentElement, { "data-theme": chosen === "system" ? null : chosen });
    localStorage.setItem(STORED, chosen);
    setText(theme, SIGNS[chosen]);
    setAttributes(theme, { "aria-label": `Theme: ${chosen}. Change it`, title: `Theme: ${chosen}` });
    repaint();
  }

  function nextTheme() {
    setTheme(THEMES[(THEMES.indexOf(localStorage.getItem(STORED)) + 1) % THEMES.length]);
  }

  function update(model) {
    const [kind, words] = PHASES[model.phase] ?? ["warn", model.phase];
    setText(phase, words);
    setAttributes(phase, { class: `badge ${kind}` });
    const [state, told] = connectionWords(model);
    setText(connection, told);
    setAttributes(connection, { class: `connection ${state}` });
    for (const each of mounted) each.update(model);
  }

  return { update, nextTheme };
}

function connectionWords({ connection, live, isNow, at }) {
  if (connection.state === "lost") return [
    "bad", `connection lost since ${new Date(connection.since).toLocaleTimeString()}; trying again`,
  ];
  if (live && connection.state === "connecting") return ["warn", "connecting …"];
  if (!live) return ["", isNow ? "report of a run that is over" : `as it was at ${moment(at)}`];
  return isNow ? ["good", "live"] : ["warn", `as it was at ${moment(at)}`];
}
