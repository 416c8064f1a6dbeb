/** Find an element of the page by its id. */
export const byId = (id) => document.getElementById(id);

/**
 * Make an element.
 * @param {string} tag Its name; "svg:…" for an SVG element.
 * @param {object} attributes Attributes; a function under "on…" is a listener, false and null leave one out.
 * @param {...(Node|string)} children What is in it.
 */
export function make(tag, attributes = {}, ...children) {
  const svg = tag.startsWith("svg:");
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Set the text of an element, if it is another one: screen readers repeat what is set. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

const hundredths = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** A number as people read it: hundredths below 1, then three digits, and all of large ones. */
export function number(value) {
  const size = Math.abs(value);
  if (size && size < 0.005) return "<0.01";
  return (size < 1 ? hundredths : size < 100 ? plain : whole).format(value);
}

/** "float32[?, 3, 8, 8]", as the server writes it. */
export function typeText({ dtype, shape }) {
  const sizes = shape === null ? "…" : shape.map((size) => size ?? "?").join(", ");
  return `${dtype || "any"}[${sizes}]`;
}

const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const seconds = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** A time in milliseconds as "14:05", or "14:05:09". */
export const clock = (time, exact = false) => (exact ? seconds : minutes).format(time);

/** A time in milliseconds as an element: "14:05:09", with the day if that is another one. */
export function moment(time) {
  const today = new Date(time).toDateString() === new Date().toDateString();
  return make("time", { datetime: new Date(time).toISOString() }, `${today ? "" : `${days.format(time)} `}${clock(time, true)}`);
}

/** "740 MB". */
export function bytes(count) {
  const power = Math.min(4, Math.floor(Math.log(Math.max(count, 1)) / Math.log(1000)));
  return `${number(count / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/**
 * Make a table; on a narrow screen, each cell has the title of its column before it.
 * @param {string} name For screen readers.
 * @param {string[]} titles Of the columns; numbers stand on the right under a title that ends with a space.
 * @param {(Node|string)[][]} rows The cells.
 */
export function table(name, titles, rows) {
  const right = titles.map((title) => (title.endsWith(" ") ? "number" : false));
  const cells = (row) => row.map((cell, at) => make(at ? "td" : "th",
    { class: right[at], scope: !at && "row", "data-title": titles[at].trim() }, cell));
  return make("table", { class: "wide", "aria-label": name },
    make("thead", {}, make("tr", {}, ...titles.map((title, at) => make("th", { scope: "col", class: right[at] }, title.trim())))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row)))));
}

/** Put children into an element, unless the same are there: what a key says. The focus and selections stay then. */
export function fill(element, key, make) {
  if (element.dataset.shown === key) return;
  element.dataset.shown = key;
  element.replaceChildren(...make());
}
