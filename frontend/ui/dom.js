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

/** A number as people read it: three digits of small ones, all of large ones. */
export const number = (value) => (Math.abs(value) < 100 ? plain : whole).format(value);

/** "float32[?, 3, 8, 8]", as the server writes it. */
export function typeText({ dtype, shape }) {
  const sizes = shape === null ? "…" : shape.map((size) => size ?? "?").join(", ");
  return `${dtype || "any"}[${sizes}]`;
}
