import { call } from "./api.js";
import { byId, bytes, fill, make, moment, number, setText } from "./dom.js";

const EVENTS = 8;

/** The events of a job, and its dead letters with buttons that queue them again. */
export class Log {
  #model = "";
  #all = false;

  /** @param {function(): void} refresh Called when letters have been queued again. */
  constructor(refresh) {
    this.refresh = refresh;
    byId("all-events").addEventListener("click", () => {
      this.#all = !this.#all;
      byId("events").classList.toggle("all", this.#all);
      this.#nameButton();
    });
    byId("requeue-all").addEventListener("click", () => this.#confirm());
  }

  /** Show what `ui/models/…` says of a model. */
  show(name, { events, deadLetters }, mayChange) {
    if (name !== this.#model) setText(byId("requeue-result"), "");
    this.#model = name;
    this.letters = deadLetters;
    this.#showEvents(events);
    fill(byId("letters"), JSON.stringify([name, mayChange, deadLetters]), () => deadLetters.length
      ? [make("ol", { class: "letters", "aria-label": "Dead letters, newest first" }, ...deadLetters.map((letter) => this.#letter(letter, mayChange)))]
      : [make("p", { class: "hint" }, "None. A request that ends its process again and again would be kept here.")]);
    byId("requeue-all").hidden = !mayChange || this.#kept().length < 2;
    byId("may-not").hidden = mayChange || !deadLetters.length;
  }

  #kept() {
    return this.letters.filter((letter) => letter.kept);
  }

  #showEvents(events) {
    byId("all-events").hidden = events.length <= EVENTS;
    this.#nameButton(events.length);
    fill(byId("events"), JSON.stringify(events), () => (events.length
      ? events.map(({ time, what, by }, at) => make("li", {}, moment(1000 * time), make("p", {}, make("span", {}, what),
        // A command causes several events, and is named at its last one.
        ...(by === events[at - 1]?.by ? [] : [make("small", {}, by)]))))
      : [make("li", { class: "hint" }, "Nothing has happened yet.")]));
  }

  #nameButton(count = byId("events").children.length) {
    setText(byId("all-events"), this.#all ? "Show fewer" : `Show all ${count}`);
  }

  #letter(letter, mayChange) {
    const button = letter.kept
      ? make("button", { type: "button", class: "quiet small", onclick: () => this.#requeue([letter.id]), "aria-label": `Requeue ${letter.uri}` }, "Requeue")
      : make("span", { class: "hint" }, "payload not kept");
    const [first, ...more] = letter.error.split("\n");
    const rest = [...more, letter.traceback].filter(Boolean).join("\n");
    return make("li", {},
      make("div", { class: "letter-head" }, make("code", {}, letter.uri), make("span", { class: "hint" }, moment(letter.time), ` · ${bytes(letter.bytes)}`)),
      make("p", {}, make("strong", {}, letter.code), " ", first),
      ...(rest ? [make("details", {}, make("summary", {}, "Traceback"), make("pre", { tabindex: 0, "aria-label": "Traceback" }, rest))] : []),
      make("div", { class: "letter-act" }, ...(mayChange || !letter.kept ? [button] : [])));
  }

  #confirm() {
    const dialog = byId("requeue-dialog");
    const ids = this.#kept().map((letter) => letter.id);
    setText(byId("requeue-question"), `${ids.length} requests are queued again under their ids. One that has ended a process may do so again.`);
    dialog.returnValue = "";
    dialog.onclose = () => dialog.returnValue === "yes" && this.#requeue(ids);
    dialog.showModal();
  }

  async #requeue(ids) {
    const place = byId("requeue-result");
    try {
      const path = `ui/models/${encodeURIComponent(this.#model)}/requeue`;
      const body = JSON.stringify({ ids });
      const { requeued, refused } = await call(path, { method: "POST", body, headers: { "content-type": "application/json" } });
      const done = requeued.length ? [`${number(requeued.length)} queued again.`] : [];
      setText(place, [...done, ...Object.values(refused)].join(" "));
    } catch (error) {
      setText(place, error instanceof TypeError ? "The server cannot be reached." : error.message);
    }
    this.refresh();
  }
}
