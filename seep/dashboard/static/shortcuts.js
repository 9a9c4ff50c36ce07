/** Single keys; they can be turned off, and do nothing while the user writes. */

const STORED = "seep-keys";

export function makeShortcuts({ tabs, bar, header, dialogs }) {
  const shortcuts = [
    ["1 … 9", "open a view"],
    ["[ and ]", "go to the mark before, and to the next"],
    [", and .", "go a second back, and forward"],
    ["p", "play or pause"],
    ["n", "go to now, or to the end"],
    ["t", "dark, light, or as the system has it"],
    ["?", "show the keys"],
  ];
  const doing = {
    "[": () => bar.step(-1), "]": () => bar.step(1), ",": () => bar.move(-1), ".": () => bar.move(1),
    p: bar.play, n: bar.now, t: header.nextTheme,
  };

  const isOn = () => localStorage.getItem(STORED) !== "off";
  const help = () => dialogs.help(shortcuts, isOn(), (on) => localStorage.setItem(STORED, on ? "on" : "off"));
  bar.onHelp(help);

  addEventListener("keydown", (event) => {
    if (
      event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target) || document.querySelector(
        "dialog[open]"
      )
    ) return;
    if (event.key === "?") help();
    else if (!isOn()) return;
    else if (/^[1-9]$/.test(event.key)) tabs.openNumber(Number(event.key) - 1);
    else if (event.key in doing) doing[event.key]();
    else return;
    event.preventDefault();
  });
}

function isWriting(target) {
  return target instanceof HTMLElement && (
    target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) && target.type !== "range"
  );
}
