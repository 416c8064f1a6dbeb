import { clock, make, number, setText } from "./dom.js";

const HEIGHT = 104;
const LEFT = 36;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 18;

/** A line chart, with the newest values above it. */
export class Chart {
  #points = [];
  #span = 1;
  #marks = [];
  #hovered = null;

  /**
   * @param {string} title What it shows.
   * @param {string} unit Of the values.
   * @param {{key: string, label: string, tone?: string}[]} series Fields of the points; a label only where there are
   *   several.
   * @param {function(?number): void} hover Called with the time under the pointer; null when it leaves.
   */
  constructor(title, unit, series, hover) {
    Object.assign(this, { title, unit, series });
    this.values = series.map(() => make("span", { class: "value none" }, "–"));
    const shown = series.map(({ label, tone }, index) =>
      make("span", { class: `reading series-${index} ${tone ?? ""}` }, this.values[index],
        make("span", { class: "unit" }, unit), ...(label ? [make("span", { class: "key" }, label)] : [])));
    this.svg = make("svg:svg", { class: "plot", role: "img", "aria-label": `${title}: no data yet`, height: HEIGHT });
    this.note = make("p", { class: "note" }, "Collecting …");
    this.time = make("span", { class: "time", "aria-hidden": "true" });
    this.element = make("article", { class: "chart" },
      make("div", { class: "chart-head" }, make("h4", {}, title), this.time),
      make("p", { class: "readings" }, ...shown), make("div", { class: "plot-box" }, this.svg, this.note));
    this.svg.addEventListener("pointermove", (event) => hover(this.#timeAt(event)));
    this.svg.addEventListener("pointerleave", () => hover(null));
    new ResizeObserver(() => this.#draw()).observe(this.svg);
  }

  /** Show points of `History.points` over a span, with marks at times. */
  show(points, span, marks) {
    this.#points = points;
    this.#span = span;
    this.#marks = marks;
    this.#draw();
  }

  /** Show the values at a time; the newest for null. */
  hover(time) {
    this.#hovered = time;
    this.#draw();
  }

  #timeAt(event) {
    const end = this.#points.at(-1)?.time;
    if (end === undefined) return null;
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    return end - this.#span + ((x - LEFT) / (this.svg.clientWidth - LEFT - RIGHT)) * this.#span;
  }

  #draw() {
    const width = this.svg.clientWidth;
    const newest = this.#points.at(-1);
    const points = this.#points.filter((point) => point.time >= newest.time - this.#span);
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
    this.#tell(newest, nearest);

    const top = niceTop(Math.max(...points.flatMap((point) => this.series.map(({ key }) => point[key] ?? 0))));
    const x = (time) => LEFT + (1 - (newest.time - time) / this.#span) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const parts = (known ? [0, top / 2, top] : [0, top]).flatMap((value) => [
      make("svg:line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
      make("svg:text", { class: "tick", x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)),
    ]);
    for (const [share, anchor] of [[0, "start"], ...(width > 220 ? [[0.5, "middle"]] : []), [1, "end"]]) {
      const place = LEFT + share * (width - LEFT - RIGHT);
      const text = share === 1 ? "now" : clock(newest.time - (1 - share) * this.#span);
      parts.push(make("svg:text", { class: "tick", x: place, y: HEIGHT - 3, "text-anchor": anchor }, text));
    }
    const vertical = (name, time) => make("svg:line", { class: name, x1: x(time), x2: x(time), y1: TOP, y2: HEIGHT - BOTTOM });
    const visible = this.#marks.filter((time) => time > newest.time - this.#span && time <= newest.time);
    parts.push(...visible.map((time) => vertical("mark", time)));
    this.series.forEach(({ key, tone }, index) => {
      const name = `series-${index} ${tone ?? ""}`;
      for (const run of runs(points, key)) {
        const line = run.map((point) => `${x(point.time).toFixed(1)},${y(point[key]).toFixed(1)}`).join("L");
        if (this.series.length === 1) {
          const area = `M${x(run[0].time)},${y(0)}L${line}L${x(run.at(-1).time)},${y(0)}Z`;
          parts.push(make("svg:path", { class: `area ${name}`, d: area }));
        }
        // The round ends of the line show a run of one point as a dot.
        parts.push(make("svg:path", { class: `line ${name}`, d: `M${line}${run.length > 1 ? "" : "h0"}` }));
      }
      if (nearest[key] !== null) {
        parts.push(make("svg:circle", { class: `dot ${name}`, cx: x(nearest.time), cy: y(nearest[key]), r: 3 }));
      }
    });
    if (nearest !== newest) parts.push(vertical("cross", nearest.time));
    this.svg.replaceChildren(...parts);
  }

  #tell(newest, nearest) {
    const text = (value) => (value === null ? "–" : number(value));
    this.series.forEach(({ key }, index) => {
      setText(this.values[index], text(nearest[key]));
      this.values[index].classList.toggle("none", nearest[key] === null);
    });
    setText(this.time, nearest === newest ? "" : clock(nearest.time, true));
    const said = this.series.map(({ key, label }) => `${label} ${text(newest[key])} ${this.unit}`.trim()).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${said}`);
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

// Labels of smaller numbers would be wider than their place.
const LEAST_TOP = 0.1;

/** The next of 1, 2, 4, 6, 8, 10, 20, 40 …, and likewise below 1. */
function niceTop(most) {
  if (most <= 0) return 1;
  const value = Math.max(most, LEAST_TOP);
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });
const short = (value) => compact.format(value);
