import { make, number, setText } from "./dom.js";
import { SPAN } from "./history.js";

const HEIGHT = 108;
const LEFT = 40;
const RIGHT = 8;
const TOP = 10;
const BOTTOM = 20;

/** A line chart of the last minutes in a card, with the newest values above it. */
export class Chart {
  #points = [];
  #hovered = null;

  /**
   * @param {string} title What it shows.
   * @param {string} unit Of the values.
   * @param {{key: string, label: string}[]} series Fields of the points; a label only where there are several.
   */
  constructor(title, unit, series) {
    Object.assign(this, { title, unit, series });
    this.values = series.map(() => make("span", { class: "value none" }, "–"));
    const shown = series.map(({ label }, index) =>
      make("span", { class: `reading series-${index}` }, ...(label ? [make("span", { class: "key" }, label)] : []),
        this.values[index], make("span", { class: "unit" }, unit)));
    this.svg = make("svg:svg", { class: "plot", role: "img", "aria-label": `${title}: no data yet`, height: HEIGHT });
    this.note = make("p", { class: "note" }, "Collecting …");
    this.time = make("span", { class: "time", "aria-hidden": "true" });
    this.element = make("article", { class: "card chart" },
      make("div", { class: "chart-head" }, make("h3", {}, title), this.time),
      make("p", { class: "readings" }, ...shown), make("div", { class: "plot-box" }, this.svg, this.note));
    this.svg.addEventListener("pointermove", (event) => this.#hover(event));
    this.svg.addEventListener("pointerleave", () => { this.#hovered = null; this.#draw(); });
    new ResizeObserver(() => this.#draw()).observe(this.svg);
  }

  /** Show points of `History.points`. */
  show(points) {
    this.#points = points;
    this.#draw();
  }

  #hover(event) {
    const end = this.#points.at(-1)?.time;
    if (end === undefined) return;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const time = end - SPAN + ((x - LEFT) / (this.svg.clientWidth - LEFT - RIGHT)) * SPAN;
    this.#hovered = time;
    this.#draw();
  }

  #draw() {
    const width = this.svg.clientWidth;
    const points = this.#points;
    const newest = points.at(-1);
    const known = points.some((point) => this.series.some(({ key }) => point[key] !== null));
    this.note.hidden = known;
    setText(this.note, newest ? "No requests yet" : "Collecting …");
    if (!width || !newest) {
      this.svg.replaceChildren();
      for (const value of this.values) {
        setText(value, "–");
        value.classList.add("none");
      }
      return;
    }
    const nearest = this.#hovered === null ? newest : points.reduce((best, point) =>
      Math.abs(point.time - this.#hovered) < Math.abs(best.time - this.#hovered) ? point : best);
    const text = (value) => (value === null ? "–" : number(value));
    this.series.forEach(({ key }, index) => {
      setText(this.values[index], text(nearest[key]));
      this.values[index].classList.toggle("none", nearest[key] === null);
    });
    setText(this.time, nearest === newest ? "now" : `${Math.round((newest.time - nearest.time) / 1000)} s ago`);
    const said = this.series.map(({ key, label }) => `${label} ${text(newest[key])} ${this.unit}`.trim()).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${said}`);

    const top = niceTop(Math.max(...points.flatMap((point) => this.series.map(({ key }) => point[key] ?? 0))));
    const x = (time) => LEFT + (1 - (newest.time - time) / SPAN) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const parts = (known ? [0, top / 2, top] : [0, top]).flatMap((value) => [
      make("svg:line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      make("svg:text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)),
    ]);
    for (const [share, label, anchor] of [[0, "3 min ago", "start"], [1, "now", "end"]]) {
      const place = LEFT + share * (width - LEFT - RIGHT);
      parts.push(make("svg:text", { class: "tick", x: place, y: HEIGHT - 4, "text-anchor": anchor }, label));
    }
    const shown = points.filter((point) => point.time >= newest.time - SPAN);
    this.series.forEach(({ key }, index) => {
      for (const run of runs(shown, key)) {
        const line = run.map((point) => `${x(point.time).toFixed(1)},${y(point[key]).toFixed(1)}`).join("L");
        if (this.series.length === 1) {
          const area = `M${x(run[0].time)},${y(0)}L${line}L${x(run.at(-1).time)},${y(0)}Z`;
          parts.push(make("svg:path", { class: `area series-${index}`, d: area }));
        }
        // The round ends of the line show a run of one point as a dot.
        parts.push(make("svg:path", { class: `line series-${index}`, d: `M${line}${run.length > 1 ? "" : "h0"}` }));
      }
      if (nearest[key] !== null) {
        parts.push(make("svg:circle", { class: `dot series-${index}`, cx: x(nearest.time), cy: y(nearest[key]), r: 3.5 }));
      }
    });
    if (nearest !== newest) {
      const place = x(nearest.time);
      parts.push(make("svg:line", { class: "cross", x1: place, x2: place, y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    this.svg.replaceChildren(...parts);
  }
}

function runs(points, key) {
  const found = [];
  let open = null;
  for (const point of points) {
    if (point[key] === null) open = null;
    else if (open) open.push(point);
    else found.push((open = [point]));
  }
  return found;
}

/** The next of 2, 4, 10, 20, 40 … */
function niceTop(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value);
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const short = (value) => compact.format(value);
