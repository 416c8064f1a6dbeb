import { byId, fill, make, setText } from "./dom.js";
import { ordered } from "./models.js";
import { samples } from "./samples.js";
import { setUpTheme } from "./theme-button.js";

const KEY = "cluster-serving-api-key";
const MULTIPART = "multipart/form-data";
const LANGUAGES = ["curl", "Python", "JavaScript"];

let models = [];
let wantsKey = false;
let shownApi = "";

// Elsewhere the names of sections are shown as they are, with a capital.
const TITLES = { openai: "OpenAI", v1: "KServe v1 and TensorFlow Serving", v2: "Open Inference Protocol v2" };

const titleOf = (name) => TITLES[name] ?? name[0].toUpperCase() + name.slice(1);
const headers = () => (byId("key").value ? { "x-api-key": byId("key").value } : {});
const resolve = (api, schema) =>
  (schema?.$ref ? schema.$ref.split("/").slice(1).reduce((part, name) => part[name], api) : schema);

function example(api, reference, depth = 0) {
  const schema = resolve(api, reference) ?? {};
  if (schema.example !== undefined) return schema.example;
  if (depth > 3 || !schema.properties) return schema.const ?? schema.enum?.[0] ?? "";
  const names = schema.required ?? Object.keys(schema.properties);
  return Object.fromEntries(names.map((name) => [name, example(api, schema.properties[name], depth + 1)]));
}

const named = ({ method, path }) => `${method.toUpperCase()} ${path}`;
const sampleOf = ({ requestBody }) => requestBody?.content["application/json"]?.example;

// Paths and methods that do the same are one entry.
function entries(api, tag) {
  const merged = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      if (!operation.tags.includes(tag)) continue;
      const known = merged.get(operation.summary);
      const found = { path, method, operation, others: [] };
      if (!known) merged.set(operation.summary, found);
      else if (!sampleOf(known.operation) && sampleOf(operation)) {
        // The form begins with a body that a model answers.
        merged.set(operation.summary, { ...found, others: [named(known), ...known.others] });
      } else known.others.push(named(found));
    }
  }
  return [...merged.values()];
}

function entry(api, { path, method, operation, others }) {
  const answers = Object.entries(operation.responses).map(([status, response]) =>
    make("tr", {}, make("th", { scope: "row" }, status), make("td", {}, resolve(api, response).description)));
  const fields = (operation.parameters ?? []).map((reference) => {
    const parameter = resolve(api, reference);
    const required = parameter.in === "path" || Boolean(parameter.required);
    return [parameter, make("input", { title: parameter.description, value: parameter.example ?? "", autocomplete: "off", required })];
  });
  const kind = Object.keys(operation.requestBody?.content ?? {})[0];
  const parts = kind === MULTIPART ? partsOf(resolve(api, operation.requestBody.content[kind].schema)) : [];
  const body = kind && kind !== MULTIPART && make("textarea", { rows: 7, spellcheck: "false", "aria-label": "Request body" });
  if (body) {
    const sample = sampleOf(operation) ?? example(api, operation.requestBody.content[kind].schema);
    body.value = kind.endsWith("json") ? JSON.stringify(sample, null, 2) : "secret=&salt=";
  }
  const output = make("pre", { tabindex: 0, "aria-label": "Answer", hidden: true });
  const button = make("button", { type: "button", class: "quiet", onclick: () => send(path, method, fields, kind, body, parts, output) }, "Send");
  return make("details", { class: "entry" },
    make("summary", {}, make("span", { class: "method" }, method.toUpperCase()), make("code", {}, path), make("span", { class: "hint" }, operation.summary)),
    ...(others.length ? [make("p", { class: "hint" }, "The same: ", make("code", {}, others.join(", ")))] : []),
    make("table", { class: "answers", "aria-label": "Answers" }, make("tbody", {}, ...answers)),
    ...fields.map(([parameter, input]) => make("label", { class: "field" }, `${parameter.name} (${parameter.in}) `, input)),
    ...parts.map(([name, input]) => make("label", { class: "field" }, `${name} (form) `, input)),
    ...(body ? [body] : []), make("div", { class: "row" }, button), output);
}

// A file is chosen. A field of one value has that if the form needs the field, and shows it otherwise.
function partsOf({ properties, required }) {
  return Object.entries(properties).map(([name, schema]) => {
    const needed = required.includes(name);
    return [name, make("input", schema.format === "binary"
      ? { type: "file", required: needed }
      : { [needed ? "value" : "placeholder"]: schema.const ?? "", autocomplete: "off", required: needed })];
  });
}

function formOf(parts) {
  const form = new FormData();
  for (const [name, input] of parts) if (input.value) form.append(name, input.files ? input.files[0] : input.value);
  return form;
}

async function send(path, method, fields, kind, body, parts, output) {
  if (![...fields, ...parts].every(([, input]) => input.reportValidity())) return;
  let url = `.${path}`;
  const query = new URLSearchParams();
  const sent = { ...headers(), ...(body && { "content-type": kind }) };
  for (const [parameter, { value }] of fields) {
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (value && parameter.in === "query") query.set(parameter.name, value);
    else if (value) sent[parameter.name] = value;
  }
  output.hidden = false;
  try {
    const response = await fetch(url + (query.size ? `?${query}` : ""), { method, headers: sent, body: parts.length ? formOf(parts) : body?.value });
    output.textContent = `${response.status} ${response.statusText}\n${await response.text()}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

function showApi(api) {
  const sections = api.tags.map(({ name, description }) =>
    make("section", { class: "card", id: `api-${name}`, "aria-labelledby": `title-${name}` },
      make("h2", { id: `title-${name}` }, titleOf(name)), make("p", { class: "hint" }, description), ...entries(api, name).map((each) => entry(api, each))));
  const schemas = make("details", { class: "card entry" }, make("summary", {}, "Schemas"),
    make("pre", { tabindex: 0, "aria-label": "Schemas" }, JSON.stringify(api.components.schemas, null, 2)));
  byId("api").replaceChildren(...sections, schemas);
  const sectionLinks = api.tags.map(({ name }) => make("li", {}, make("a", { href: `#api-${name}` }, titleOf(name))));
  byId("sections").replaceChildren(byId("sections").firstElementChild, ...sectionLinks);
}

/** Show the example for the chosen model and language. */
function showSample() {
  const language = byId("language").querySelector(":checked").value;
  const model = models.find(({ modelName }) => modelName === byId("model-choice").value) ?? null;
  // A proxy may serve the page below a path of its own.
  const origin = new URL(".", location.href).href.replace(/\/$/, "");
  setText(byId("sample"), samples(model, origin, wantsKey)[language]);
  // A browser follows a link without the API key.
  byId("sample-document").hidden = !model || wantsKey;
  if (model) byId("model-document").href = `models/${encodeURIComponent(model.modelName)}/openapi.json`;
}

async function readModels() {
  const response = await fetch("models", { headers: headers(), cache: "no-store" });
  const content = await response.json().catch(() => null);
  if (response.ok) {
    sessionStorage.setItem(KEY, byId("key").value);
    models = ordered(content);
  }
  const names = [...new Set(models.map(({ modelName }) => modelName))];
  fill(byId("model-choice"), names.join("\n"), () => names.map((name) => make("option", { value: name }, name)));
  const named = decodeURIComponent(location.hash.slice(1).split("/")[0]);
  if (names.includes(named)) byId("model-choice").value = named;
  const asked = response.status === 401 ? "The API key below shows the models here, with their inputs." : "";
  setText(byId("sample-note"), asked || (names.length ? "" : "No model is being served: this is an example of any."));
  showSample();
}

/** Show the paths; again if the API key gives examples of models. Otherwise forms keep what was typed. */
async function readApi() {
  const response = await fetch("openapi.json", { headers: headers() });
  const content = await response.text();
  if (!response.ok || content === shownApi) return;
  shownApi = content;
  const api = JSON.parse(content);
  wantsKey = api.security.length > 0;
  byId("key-field").hidden = !wantsKey;
  showApi(api);
}

async function read() {
  await readApi();
  await readModels();
}

async function start() {
  setUpTheme();
  const choices = LANGUAGES.map((name, at) =>
    make("label", {}, make("input", { type: "radio", name: "language", value: name, checked: !at }), make("span", {}, name)));
  byId("language").append(...choices);
  byId("key").value = sessionStorage.getItem(KEY) ?? "";
  byId("key").addEventListener("change", read);
  for (const name of ["language", "model-choice"]) byId(name).addEventListener("change", showSample);
  byId("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(byId("sample").textContent);
    setText(byId("copy"), "Copied");
    setTimeout(() => setText(byId("copy"), "Copy"), 2000);
  });
  // Browsers have a clipboard for pages of this machine, and over HTTPS.
  byId("copy").hidden = !navigator.clipboard;
  await read();
}

start();
