/** The views, of which one is shown: made when it is first opened, and brought up to date while it is shown. */

import { element, setAttributes, setChildren } from "./dom.js";

/** `views` are pairs of a name and a module with `title` and `mount(root, app)`. */
export function makeTabs(bar, panels, views, app) {
  const tabs = views.map(([name, view]) => ({ name, view, button: null, panel: null, mounted: null }));
  let shown = null;

  function begin() {
    for (const tab of tabs) {
      const panel = `panel-${tab.name}`;
      const listeners = { click: () => open(tab.name), keydown: moved };
      const attributes = {
        type: "button", role: "tab", id: `tab-${tab.name}`, "aria-controls": panel, class: "tab", on: listeners,
      };
      tab.button = element("button", attributes, tab.view.title);
      tab.panel = element(
        "section",
        { id: panel, role: "tabpanel", "aria-labelledby": `tab-${tab.name}`, class: "panel-page", hidden: true },
      );
    }
    setChildren(bar, tabs.map((tab) => tab.button));
    panels.append(...tabs.map((tab) => tab.panel));
    addEventListener("hashchange", () => open(location.hash.slice(1)));
    document.addEventListener(
      "visibilitychange", () => (document.hidden ? shown?.mounted.hide?.() : shown?.mounted.show?.()),
    );
    open(tabs.some((tab) => `#${tab.name}` === location.hash) ? location.hash.slice(1) : tabs[0].name);
  }

  function open(name) {
    const tab = tabs.find((each) => each.name === name);
    if (!tab || tab === shown || !tab.panel) return;
    shown?.mounted.hide?.();
    for (const each of tabs) {
      setAttributes(each.button, { "aria-selected": String(each === tab), tabindex: each === tab ? "0" : "-1" });
      each.panel.hidden = each !== tab;
    }
    shown = tab;
    tab.mounted ??= tab.view.mount(tab.panel, app);
    tab.mounted.show?.();
    tab.mounted.update(app.store.model);
    tab.button.scrollIntoView?.({ block: "nearest", inline: "nearest" });
    if (location.hash !== `#${name}`) history.replaceState(null, "", `#${name}`);
  }

  function moved(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const last = tabs.length - 1;
    const step = steps[event.key];
    const place = tabs.indexOf(shown) + step;
    const next = Number.isFinite(step) ? (place + tabs.length) % tabs.length : step < 0 ? 0 : last;
    open(tabs[next].name);
    tabs[next].button.focus();
  }

  return {
    begin,
    open,
    openNumber: (place) => tabs[place] && open(tabs[place].name),
    update: (model) => shown?.mounted.update(model),
  };
}
