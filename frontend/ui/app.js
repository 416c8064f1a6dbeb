import { call } from "./api.js";
import { Chart } from "./chart.js";
import { byId, setText } from "./dom.js";
import { History } from "./history.js";
import { idOf, linkOf, showList, showModel, stateOf } from "./models.js";
import { Tryout } from "./tryout.js";

const INTERVAL = 1000;

const charts = [
  new Chart("Throughput", "/s", [{ key: "throughput", label: "" }]),
  new Chart("Latency", "ms", [{ key: "p50", label: "p50" }, { key: "p95", label: "p95" }]),
  new Chart("Queue", "waiting", [{ key: "queue", label: "" }]),
  new Chart("Batch size", "requests", [{ key: "batch", label: "" }]),
];
const histories = new Map();
const tryout = new Tryout();
let models = [];
let chosen = null;

const named = () => models.find((one) => linkOf(one, models) === location.hash.slice(1));
// An update of a model takes its former version away.
const updated = () => models.find((one) => one.modelName === chosen?.split("\n")[0]);

function show() {
  const serving = models.find((one) => stateOf(one) === "ready");
  const model = models.find((one) => idOf(one) === chosen) ?? updated() ?? named() ?? serving ?? models[0];
  chosen = model ? idOf(model) : chosen;
  showList(models, chosen, choose);
  byId("model").hidden = !model;
  document.querySelector("aside").hidden = !model;
  document.querySelector("main").classList.toggle("alone", !model);
  if (!model) return;
  showModel(model);
  tryout.show(model);
  const points = histories.get(chosen).points();
  charts.forEach((chart) => chart.show(points));
}

/** The history of a version that is new: that of the version which it replaces goes on. */
function successor(model) {
  const known = new Set(models.map(idOf));
  const replaced = [...histories.keys()].find((id) => id.split("\n")[0] === model.modelName && !known.has(id));
  const found = histories.get(replaced) ?? new History();
  histories.delete(replaced);
  return found;
}

function choose(id) {
  chosen = id;
  history.replaceState(null, "", `#${linkOf(models.find((one) => idOf(one) === id), models)}`);
  show();
}

function connection(state, text) {
  byId("connection").dataset.state = state;
  setText(byId("connection"), text);
}

function link(element, address) {
  element.hidden = !address;
  if (address) element.href = address;
}

async function refresh() {
  try {
    const data = await call("ui/data");
    models = data.models;
    for (const model of models) {
      const id = idOf(model);
      if (!histories.has(id)) histories.set(id, successor(model));
      histories.get(id).add(data.time, model, data.latencyBounds);
    }
    link(byId("docs-link"), data.apiDocs.replace(/^\//, ""));
    link(byId("flink-link"), data.flinkUrl);
    byId("loading").hidden = true;
    connection("ready", "Live");
    show();
  } catch (error) {
    // A failed fetch raises a TypeError, whose message depends on the browser.
    connection("failed", error instanceof TypeError ? "The server cannot be reached" : error.message);
  }
  setTimeout(refresh, INTERVAL);
}

function setUpTheme() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const name = () => setText(byId("theme"), isDark() ? "Light" : "Dark");
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem("cluster-serving-theme", root.dataset.theme);
    name();
  });
  dark.addEventListener("change", name);
  name();
}

// Other links of the page, as the one to the form, name no model.
addEventListener("hashchange", () => {
  if (!named()) return;
  chosen = idOf(named());
  show();
});
byId("charts").append(...charts.map((chart) => chart.element));
setUpTheme();
refresh();
