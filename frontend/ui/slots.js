import { byId, bytes, fill, make, number, table } from "./dom.js";
import { badge } from "./models.js";

const SPAN = 20_000;

/** Totals of a slot over the last seconds, of which only the changes are kept: slots write them now and then. */
class Meter {
  #samples = [];

  add(time, value) {
    const last = this.#samples.at(-1);
    if (last && value < last.value) this.#samples = [];
    if (last?.value === value && this.#samples.length > 1) return;
    this.#samples.push({ time, value });
    while (this.#samples.length > 2 && this.#samples[1].time < time - SPAN) this.#samples.shift();
  }

  /** Growth of the value per microsecond; null if nothing is known, 0 if it has not grown for long. */
  rate(now) {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    if (now - last.time > SPAN) return 0;
    return last.time > first.time ? (last.value - first.value) / (1000 * (last.time - first.time)) : null;
  }
}

const meters = new Map();

function rate(key, time, value) {
  if (!meters.has(key)) meters.set(key, new Meter());
  meters.get(key).add(time, value);
  return meters.get(key).rate(time);
}

/** Show the slots of a model at a time: how busy they are, and what their processes use. */
export function showSlots(model, time) {
  const rows = model.slotReports.map((slot) => {
    const id = `${model.modelName}\n${model.modelVersion}\n${slot.index}`;
    const busy = rate(`${id}\nbusy`, time, slot.computeUs);
    const cores = rate(`${id}\ncores`, time, slot.cpuUs);
    return [slot.index, slot.state, slot.device || "–", slot.threads || "–", busy === null ? null : Math.min(1, busy),
      cores === null || !slot.cpuUs ? "–" : number(Number(cores.toFixed(2))), slot.memory ? bytes(slot.memory) : "–", slot.restarts];
  });
  const titles = ["Slot", "State", "Device", "Threads ", "Busy", "Cores ", "Memory ", "Restarts "];
  fill(byId("slots"), JSON.stringify(rows), () => [rows.length
    ? table("Slots", titles, rows.map(([index, state, device, threads, busy, ...rest]) =>
      [String(index), badge(state), device, String(threads), gauge(busy), ...rest.map(String)]))
    : make("p", { class: "hint" }, "None.")]);
}

function gauge(share) {
  if (share === null) return "–";
  const bar = make("span", { class: "bar" });
  bar.style.setProperty("--share", share);
  return make("span", { class: "gauge" }, make("span", { class: "track", "aria-hidden": "true" }, bar), `${number(Number((100 * share).toFixed(1)))} %`);
}
