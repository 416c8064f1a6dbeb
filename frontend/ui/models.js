import { byId, make, setText, typeText } from "./dom.js";

const WORDS = { ready: "Ready", loading: "Loading", failed: "Failed", stopped: "Stopped", unknown: "Unknown" };

/** Name and version, by which the page tells models apart. */
export const idOf = (model) => `${model.modelName}\n${model.modelVersion}`;

/** The part of the page's address that names a model; with the version where a model has several. */
export function linkOf(model, models) {
  const several = models.filter((other) => other.modelName === model.modelName).length > 1;
  return encodeURIComponent(model.modelName) + (several ? `/${encodeURIComponent(model.modelVersion)}` : "");
}

/** The state of a model, as a word that the page has. */
export function stateOf(model) {
  return model.state in WORDS ? model.state : "unknown";
}

function badge(state) {
  return make("span", { class: "badge", "data-state": state }, WORDS[state]);
}

/** Show the list; buttons are kept as long as their models are there, so the focus stays. */
export function showList(models, chosen, choose) {
  const list = byId("models");
  const shown = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const items = models.map((model) => {
    const id = idOf(model);
    const item = shown.get(id) ?? make("li", { "data-id": id }, make("button", { type: "button", onclick: () => choose(id) }));
    const button = item.firstChild;
    const state = stateOf(model);
    const several = models.filter((other) => other.modelName === model.modelName).length > 1;
    const text = [model.modelName, several ? `version ${model.modelVersion}` : "", model.engine, state].join("|");
    if (button.dataset.shown !== text) {
      button.dataset.shown = text;
      button.replaceChildren(
        make("span", { class: "name" }, model.modelName, ...(several ? [make("small", {}, ` v${model.modelVersion}`)] : [])),
        make("span", { class: "under" }, badge(state), make("small", {}, model.engine)),
      );
    }
    if (id === chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
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
  const facts = [`version ${model.modelVersion}`, model.engine, `${count} ${count === 1 ? "slot" : "slots"}${threads}`, batch && `batches of up to ${batch}`];
  setText(byId("model-line"), facts.filter(Boolean).join(" · "));
  const shown = byId("model-state");
  if (shown.textContent !== WORDS[state]) shown.replaceChildren(badge(state));

  const failures = model.slotReports.filter((slot) => slot.error).map(({ code, error }) => [code, error]);
  const stopped = [["", "The job does not run. What is sent to it waits in its queue until it is started."]];
  const refused = model.refusedModel ? [["", model.refusedModel]] : [];
  const problems = JSON.stringify([...(state === "stopped" ? stopped : failures), ...refused]);
  const place = byId("problem");
  if (place.dataset.shown !== problems) {
    place.dataset.shown = problems;
    // Most slots fail for the same reason, so each reason is shown once.
    const texts = new Map(JSON.parse(problems).map(([code, text]) => [text, code]));
    place.replaceChildren(...[...texts].map(([text, code]) =>
      make("p", {}, ...(code ? [make("strong", {}, code), " "] : []), text)));
    place.hidden = texts.size === 0;
  }

  const details = byId("details");
  const known = JSON.stringify([model.inputs, model.outputs, model.slotReports, facts, model.postProcessing]);
  if (details.dataset.shown === known) return;
  details.dataset.shown = known;
  details.replaceChildren(
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
  );
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
