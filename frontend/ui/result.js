import { make, number } from "./dom.js";

const MOST_BARS = 5;
const MOST_CHARACTERS = 20_000;
const MOST_NUMBERS = 2_000;

/** Show the predictions of a response, how long it took, and a link to its trace if there is one. */
export function showPredictions(place, predictions, milliseconds, trace = "") {
  const link = trace ? [" · ", make("a", { href: trace, target: "_blank", rel: "noopener" }, "Trace")] : [];
  const time = make("p", { class: "took" }, `Answered in ${number(milliseconds)} ms`, ...link);
  const several = predictions.length > 1;
  place.replaceChildren(time, ...predictions.map((prediction, index) =>
    make("div", { class: "prediction" },
      ...(several ? [make("h4", {}, `Prediction ${index + 1}`)] : []),
      ..."error" in prediction ? [problem(prediction.error, prediction.code)] : outcome(prediction.value))));
}

/** Show an error, as the server words it. */
export function showError(place, error) {
  const each = error.content?.predictions;
  if (each?.length > 1) {
    showPredictions(place, each, error.milliseconds);
    return;
  }
  place.replaceChildren(problem(error.message, error.code));
}

function problem(message, code) {
  return make("div", { class: "problem" }, ...(code ? [make("strong", {}, code)] : []), make("p", {}, message));
}

function outcome(value) {
  if (isRanking(value)) return ranked(value);
  if (Array.isArray(value) && value.length && value.every(isRanking)) {
    return value.flatMap((ranking, index) => [make("h4", {}, `Output ${index + 1}`), ...outcome(ranking)]);
  }
  if (isVector(value)) return [plot(value), raw("output", value, true)];
  if (typeof value === "string") return [make("pre", { class: "text", tabindex: 0, "aria-label": "Text" }, value)];
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    return Object.entries(value).flatMap(([name, output]) => [make("h4", {}, name), ...outcome(output)]);
  }
  return [raw("output", value, true)];
}

const isRanking = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((item) => item !== null && typeof item === "object" && "class" in item && "prob" in item);
const isVector = (value) =>
  Array.isArray(value) && value.length > 1 && value.length <= MOST_NUMBERS && value.every((item) => typeof item === "number" || item === null);

function ranked(items) {
  const shown = items.slice(0, MOST_BARS);
  const largest = Math.max(...shown.map(({ prob }) => Math.abs(prob)).filter(Number.isFinite), 1e-12);
  const full = largest <= 1 && items.every(({ prob }) => prob >= 0) ? 1 : largest;
  const rows = shown.map(({ class: index, label, prob: value }, place) => {
    const name = label === undefined
      ? [make("span", { class: "hidden" }, "class "), String(index)]
      : [label, make("small", { title: `class ${index}` }, ` ${index}`)];
    const bar = make("span", { class: value < 0 ? "bar negative" : "bar" });
    bar.style.setProperty("--share", Number.isFinite(value) ? Math.abs(value) / full : 0);
    return make("li", { class: place ? "" : "best" },
      make("span", { class: "class" }, ...name),
      make("span", { class: "track", "aria-hidden": "true" }, bar), make("span", { class: "share" }, score(value)));
  });
  return [make("ol", { class: "bars", "aria-label": "Classes, best first" }, ...rows)];
}

/** Bars of a vector's numbers in their order, from the zero line up or down. */
function plot(values) {
  const numbers = values.map((value) => value ?? 0);
  const top = Math.max(...numbers, 0);
  const height = top - Math.min(...numbers, 0) || 1;
  const bars = numbers.map((value, index) => make("svg:rect", {
    x: index, width: 0.8, y: (top - Math.max(value, 0)) / height, height: Math.abs(value) / height,
  }, make("svg:title", {}, `${index}: ${values[index]}`)));
  const range = `from ${score(Math.min(...numbers))} to ${score(Math.max(...numbers))}`;
  return make("svg:svg", {
    class: "vector", viewBox: `0 0 ${numbers.length} 1`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${numbers.length} numbers ${range}`,
  }, ...bars);
}

function score(value) {
  if (!Number.isFinite(value)) return "not a number";
  return Math.abs(value) < 1000 ? value.toFixed(3) : value.toPrecision(4);
}

function raw(name, value, open = false) {
  const shape = shapeOf(value);
  const text = JSON.stringify(value);
  const cut = text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)} …` : text;
  const title = shape.length ? `All values, shape [${shape.join(", ")}]` : "Value";
  return make("details", { open: open && text.length < 2000 }, make("summary", {}, title),
    make("pre", { tabindex: 0, "aria-label": `Values of ${name}` }, cut));
}

function shapeOf(value) {
  return Array.isArray(value) ? [value.length, ...shapeOf(value[0])] : [];
}
