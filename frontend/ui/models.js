import { byId, fill, make, number, setText, typeText } from "./dom.js";

// In the order of the list.
const WORDS = {
  ready: "Ready", loading: "Loading", failed: "Failed", stopped: "Stopped", unloaded: "Unloaded", unknown: "Unknown",
  silent: "Silent", ended: "Ended",
};

/** Name and version, by which the page tells models apart. */
export const idOf = (model) => `${model.modelName}\n${model.modelVersion}`;

/** The part of the page's address that names a model; with the version where a model has several. */
export function linkOf(model, models) {
  return encodeURIComponent(model.modelName) + (several(model, models) ? `/${encodeURIComponent(model.modelVersion)}` : "");
}

/** Whether a model is served in several versions, as while it has a canary. */
export const several = (model, models) => models.filter((other) => other.modelName === model.modelName).length > 1;

/** The state of a model, as a word that the page has. */
export function stateOf(model) {
  return model.state in WORDS ? model.state : "unknown";
}

/** The models in the order of the list: those that serve come first. */
export function ordered(models) {
  const states = Object.keys(WORDS);
  return models.toSorted((one, other) => states.indexOf(stateOf(one)) - states.indexOf(stateOf(other)));
}

/** A state with its dot. */
export function badge(state) {
  return make("span", { class: "badge", "data-state": state }, WORDS[state] ?? state);
}

/** Show the list; buttons are kept as long as their models are there, so the focus stays. */
export function showList(models, chosen, choose, rateOf) {
  const list = byId("models");
  const shown = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const items = models.map((model) => {
    const id = idOf(model);
    const item = shown.get(id) ?? make("li", { "data-id": id },
      make("button", { type: "button", onclick: () => choose(id) }, make("span", { class: "name" }), make("span", { class: "under" })));
    const [name, under] = item.firstChild.children;
    const version = several(model, models) ? ` v${model.modelVersion}` : "";
    fill(name, model.modelName + version, () => [model.modelName, make("small", {}, version)]);
    const rate = rateOf(model);
    const told = rate === null ? model.engine : `${number(rate)}/s`;
    fill(under, `${stateOf(model)} ${told}`, () => [badge(stateOf(model)), make("small", {}, told)]);
    if (id === chosen) item.firstChild.setAttribute("aria-current", "true");
    else item.firstChild.removeAttribute("aria-current");
    return item;
  });
  if (items.length !== list.children.length || items.some((item, index) => list.children[index] !== item)) {
    list.replaceChildren(...items);
  }
  byId("no-models").hidden = models.length > 0;
}

/** Show what is known of the chosen model. */
export function showModel(model) {
  const state = stateOf(model);
  const count = model.slotReports.length;
  setText(byId("model-name"), model.modelName);
  const batch = model.engine ? String(model.maxBatchSize) : "";
  const threads = model.threadPerModel ? ` of ${model.threadPerModel} ${model.threadPerModel === 1 ? "thread" : "threads"}` : "";
  const canary = model.canary ? "canary" : "";
  const facts = [`version ${model.modelVersion}`, canary, model.engine, `${count} ${count === 1 ? "slot" : "slots"}${threads}`, batch && `batches of up to ${batch}`];
  setText(byId("model-line"), facts.filter(Boolean).join(" · "));
  fill(byId("model-state"), state, () => [badge(state)]);
  showProblems(model, state);
  const known = JSON.stringify([model.inputs, model.outputs, model.slots, facts, model.postProcessing]);
  fill(byId("details"), known, () => [
    tensors("Inputs", model.inputs),
    tensors("Outputs", model.outputs),
    make("dl", {},
      ...fact("Version", model.modelVersion),
      ...fact("Engine", model.engine || "–"),
      ...fact("Device", counted(model.slotReports, "device") || "–"),
      ...fact("Filter", model.engine ? model.postProcessing || "none" : "–"),
      ...fact("Largest batch", batch || "–"),
      ...fact("Stream", model.redisInputQueue),
      ...fact("Slots", counted(model.slotReports, "state") || "none")),
  ]);
}

function showProblems(model, state) {
  const failures = model.slotReports.filter((slot) => slot.error).map(({ code, error }) => [code, error]);
  const stopped = [["", "The job does not run. What is sent to it waits in its queue until it is started."]];
  const refused = model.refusedModel ? [["", model.refusedModel]] : [];
  const problems = [...(state === "stopped" ? stopped : failures), ...refused];
  // Most slots fail for the same reason, so each reason is shown once.
  const texts = new Map(problems.map(([code, text]) => [text, code]));
  fill(byId("problem"), JSON.stringify([...texts]), () => [...texts].map(([text, code]) =>
    make("p", {}, ...(code ? [make("strong", {}, code), " "] : []), text)));
  byId("problem").hidden = texts.size === 0;
}

function tensors(title, specs) {
  const rows = specs.map((spec) =>
    make("tr", {}, make("th", { scope: "row" }, spec.name), make("td", {}, make("code", {}, typeText(spec)))));
  const empty = make("tr", {}, make("td", { class: "hint" }, "not known yet"));
  return make("table", {}, make("caption", {}, title), make("tbody", {}, ...(rows.length ? rows : [empty])));
}

function fact(name, value) {
  return [make("dt", {}, name), make("dd", {}, value)];
}

/** "8 ready", or "6 ready, 1 loading, 1 failed" where the states of the slots differ; also of their devices. */
function counted(reports, property) {
  const counts = new Map();
  for (const { [property]: value } of reports) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].map(([value, count]) => `${count} ${value}`).join(", ");
}
