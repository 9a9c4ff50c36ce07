/** Formats figures for people, as seep/reports/figures.py does. What is not known is "–". */

export const UNKNOWN = "–";

/** The formats by number of digits: making one takes long. */
const FORMATS = [];
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];

function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function fixed(value, digits) {
  FORMATS[digits] ??= new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return FORMATS[digits].format(plain(value));
}

/** 12345.6 → "12,346" */
export function number(value, digits = 0) {
  return isKnown(value) ? fixed(value, digits) : UNKNOWN;
}

/** -0 is 0: what is shown has no sign without a number. */
function plain(value) {
  return Math.abs(value) < 1e-9 ? 0 : value;
}

/** 12345.6 → "12,346 rows/s" */
export function rate(value, thing = "rows") {
  return isKnown(value) ? `${fixed(value, value > 0 && value < 10 ? 1 : 0)} ${thing}/s` : UNKNOWN;
}

/** 12345.6 → "12.3 k": for where there is little room. */
export function short(value) {
  if (!isKnown(value)) return UNKNOWN;
  for (const [limit, unit] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= limit) return `${(value / limit).toPrecision(3)}${unit}`;
  }
  return fixed(value, value > 0 && value < 10 ? 1 : 0).replace(/\.0$/, "");
}

/** 3145728 → "3.0 MiB" */
export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  let amount = value;
  let step = 0;
  while (amount >= 1024 && step < SIZES.length - 1) {
    amount /= 1024;
    step += 1;
  }
  return step ? `${amount.toFixed(1)} ${SIZES[step]}` : `${Math.round(amount)} B`;
}

/** A duration: 0.0456 → "45.6 ms", 12.34 → "12.3 s" */
export function seconds(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (plain(value) === 0) return "0 s";
  const [unit, name] = value < 1e-3 ? [1e-6, "µs"] : value < 1 ? [1e-3, "ms"] : [1, "s"];
  const amount = value / unit;
  return `${fixed(amount, amount < 10 ? 2 : amount < 100 ? 1 : 0)} ${name}`;
}

/** How long ago something was: 12.34 → "12.3 s ago" */
export function age(value) {
  return isKnown(value) ? `${seconds(Math.max(value, 0))} ago` : UNKNOWN;
}

/** 0.834 → "83 %" */
export function percent(value) {
  return isKnown(value) ? `${fixed(100 * value, 0)} %` : UNKNOWN;
}

/** A time of the run: 12.34 → "12.3 s", 3725 → "1:02:05" */
export function moment(value) {
  if (!isKnown(value)) return UNKNOWN;
  if (Math.abs(value) < 120) return `${fixed(value, 1)} s`;
  const whole = Math.round(Math.abs(value));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const [hours, minutes, rest] = parts.map((each) => String(each).padStart(2, "0"));
  return `${value < 0 ? "-" : ""}${parts[0] ? `${Number(hours)}:${minutes}` : Number(minutes)}:${rest}`;
}

/** count(2, "recovery") → "2 recoveries" */
export function count(value, thing) {
  if (value === 1) return `1 ${thing}`;
  return `${number(value)} ${thing.endsWith("y") ? `${thing.slice(0, -1)}ies` : `${thing}s`}`;
}

/** names(["a", "b", "c", "d"]) → "a, b, c and 1 more" */
export function names(listed, most = 3) {
  const more = listed.length - most;
  return listed.slice(0, most).join(", ") + (more > 0 ? ` and ${number(more)} more` : "");
}

/** cut("counter", 5) → "coun…" */
export function cut(text, most) {
  const characters = [...text];
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join("")}…`;
}

/** The CSS colour of an instance or operator by its index. */
export function colourOf(index) {
  return `var(--series-${((index % 10) + 10) % 10})`;
}
