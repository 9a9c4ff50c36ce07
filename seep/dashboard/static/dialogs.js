/** What the page asks and tells the user: confirmation, notices and help. */

import { element } from "./dom.js";

/** Milliseconds for which a notice stays; one of something bad stays until it is dismissed. */
const STAYS = 8000;
const MOST_NOTICES = 5;

export function makeDialogs(notices) {
  /** Shows a notice; `kind` is "good", "warn" or "bad". */
  function notify(text, kind = "good") {
    const close = element(
      "button",
      { type: "button", class: "button quiet", "aria-label": "Dismiss", on: { click: () => notice.remove() } }, "✕",
    );
    const notice = element("div", { class: `notice ${kind}` }, element("span", {}, text), close);
    notices.append(notice);
    while (notices.children.length > MOST_NOTICES) notices.firstChild.remove();
    if (kind !== "bad") setTimeout(() => notice.remove(), STAYS);
  }

  /** Asks whether to do something; `details` are nodes or texts below the question. */
  function confirm(question, details = [], { yes = "Yes", danger = false } = {}) {
    return new Promise((resolve) => {
      const accept = element(
        "button", { type: "submit", value: "yes", class: danger ? "button danger" : "button primary" }, yes,
      );
      const refuse = element("button", { type: "submit", value: "no", class: "button", autofocus: true }, "Cancel");
      const title = element("h2", { id: "question" }, question);
      const lines = [details].flat().map((each) => (each instanceof Node ? each : element("p", {}, each)));
      open(
        element("dialog", { "aria-labelledby": "question" }, form(title, ...lines, row(refuse, accept))),
        (value) => resolve(value === "yes"),
      );
    });
  }

  function help(shortcuts, isOn, turn) {
    const rows = shortcuts.map(
      ([keys, what]) => element(
        "tr", {}, element("th", { scope: "row" }, element("kbd", {}, keys)), element("td", {}, what),
      )
    );
    const box = element("input", { type: "checkbox", checked: isOn, on: { change: () => turn(box.checked) } });
    const close = element("button", { type: "submit", value: "close", class: "button", autofocus: true }, "Close");
    open(element("dialog", { "aria-labelledby": "help-title" }, form(
      element("h2", { id: "help-title" }, "Keys"),
      element("table", { class: "table" }, element("tbody", {}, rows)),
      element("label", { class: "check" }, box, "Single keys do this"),
      row(close),
    )));
  }

  return { confirm, notify, help };
}

function form(...children) {
  return element("form", { method: "dialog" }, ...children);
}

function row(...buttons) {
  return element("div", { class: "row end" }, ...buttons);
}

/** Shows a dialog until it is closed; the focus returns to where it was. */
function open(dialog, closed = () => {}) {
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
    closed(dialog.returnValue);
  });
  document.body.append(dialog);
  dialog.showModal();
}
