import { call } from "./api.js";
import { byId, setText } from "./dom.js";
import { Figures } from "./figures.js";
import { History } from "./history.js";
import { Log } from "./log.js";
import { idOf, linkOf, ordered, several, showList, showModel, stateOf } from "./models.js";
import { showSlots } from "./slots.js";
import { setUpTheme } from "./theme-button.js";
import { Tryout } from "./tryout.js";

const INTERVAL = 1000;
const LOG_INTERVAL = 5000;

const histories = new Map();
const figures = new Figures();
const tryout = new Tryout();
const log = new Log(() => refreshLog());
let data = { models: [] };
let models = [];
let chosen = null;
let shown = null;
let marks = [];

const current = () => models.find((one) => idOf(one) === chosen);
const named = () => models.find((one) => linkOf(one, models) === location.hash.slice(1));
// An update of a model takes its former version away.
const updated = () => models.find((one) => one.modelName === chosen?.split("\n")[0]);

function historyOf(model) {
  const job = model.redisInputQueue;
  if (!histories.has(job)) histories.set(job, new History());
  return histories.get(job);
}

function rateOf(model) {
  const history = historyOf(model);
  if (stateOf(model) !== "ready" || !history.newest) return null;
  const did = history.totals({ span: 10_000 }, several(model, models) ? model.modelVersion : "");
  return did.seconds ? did.requests / did.seconds : null;
}

function show() {
  const model = current() ?? updated() ?? named() ?? models[0];
  chosen = model ? idOf(model) : chosen;
  showList(models, chosen, choose, rateOf);
  byId("model").hidden = !model;
  document.querySelector("aside").hidden = !model;
  document.querySelector("main").classList.toggle("alone", !model);
  if (!model) return;
  if (model.modelName !== shown?.split("\n")[0]) {
    marks = [];
    refreshLog();
  }
  link(byId("docs-link"), `docs#${encodeURIComponent(model.modelName)}`);
  showModel(model);
  showSlots(model, data.time);
  tryout.show(model, data.traceUrl);
  const alone = several(model, models) ? model.modelVersion : "";
  const states = new Map(models.filter((one) => one.modelName === model.modelName).map((one) => [one.modelVersion, stateOf(one)]));
  figures.show(historyOf(model), data.latencyBounds, states, marks, shown === chosen ? undefined : alone);
  shown = chosen;
}

function choose(id) {
  chosen = id;
  history.replaceState(null, "", `#${linkOf(current(), models)}`);
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
    data = await call("ui/data");
    models = ordered(data.models);
    for (const model of models) {
      const sample = data.jobs[model.redisInputQueue];
      if (sample) historyOf(model).add([sample]);
    }
    link(byId("flink-link"), data.flinkUrl);
    byId("loading").hidden = true;
    connection("ready", "Live");
    show();
  } catch (error) {
    // A failed fetch raises a TypeError, whose message depends on the browser.
    connection("failed", error instanceof TypeError ? "The server cannot be reached" : error.message);
  }
}

/** Get what a second does not change: the hour before, events and dead letters. */
async function refreshLog() {
  const model = current();
  if (!model) return;
  const past = historyOf(model);
  try {
    const path = `ui/models/${encodeURIComponent(model.modelName)}?since=${past.since ?? 0}`;
    const told = await call(path);
    past.add(told.history);
    past.since = told.history.at(-1)?.time ?? past.since;
    if (current()?.modelName !== model.modelName) return;
    marks = told.events.map((event) => 1000 * event.time);
    log.show(model.modelName, told, data.mayChange);
    show();
  } catch {
    // The state of the connection is told by the other call.
  }
}

/** Call a function again and again, each time when the last call has ended; not while nobody sees the page. */
async function repeat(work, interval) {
  if (!document.hidden) await work();
  setTimeout(() => repeat(work, interval), interval);
}

// Other links of the page, as the one to the form, name no model.
addEventListener("hashchange", () => {
  if (!named()) return;
  chosen = idOf(named());
  show();
});
setUpTheme();
repeat(refresh, INTERVAL);
setTimeout(() => repeat(refreshLog, LOG_INTERVAL), LOG_INTERVAL);
