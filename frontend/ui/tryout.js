import { call } from "./api.js";
import { byId, make, setText, typeText } from "./dom.js";
import { exampleBody, takesImages } from "./example.js";
import { idOf } from "./models.js";
import { showError, showPredictions } from "./result.js";

/** The form that sends an image or JSON to the chosen model. */
export class Tryout {
  #model = null;
  #image = null;
  #shown = "";
  #example = "";

  constructor() {
    this.form = byId("form");
    this.result = byId("result");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.form.addEventListener("change", (event) => event.target.name === "kind" && this.#showKind());
    byId("file").addEventListener("change", (event) => event.target.files[0] && this.#take(event.target.files[0]));
    byId("example").addEventListener("click", () => this.#fillExample());
    byId("body").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    // A file chooser inside a label handles Enter by itself.
    byId("file").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.#image) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    this.#acceptDrops();
    document.addEventListener("paste", (event) => {
      const file = [...event.clipboardData.files].find((pasted) => pasted.type.startsWith("image/"));
      if (!file) return;
      event.preventDefault();
      this.#choose("image");
      this.#take(file);
    });
  }

  /** Show the form for a model; what was filled in stays, as long as the model takes the same. */
  show(model, traceUrl = "") {
    this.traceUrl = traceUrl;
    const key = JSON.stringify([idOf(model), model.inputs, model.inputAlreadyBatched]);
    this.#model = model;
    const failed = model.state === "failed";
    byId("send").disabled = failed;
    setText(byId("send-hint"), failed ? "The model has failed; it answers nothing." : "");
    if (key === this.#shown) return;
    const other = !this.#shown || JSON.parse(this.#shown)[0] !== idOf(model);
    this.#shown = key;
    if (other) this.result.replaceChildren();
    if (other || byId("body").value === this.#example) this.#fillExample();
    const image = this.form.elements.kind[0];
    image.parentElement.title = withoutImage(model);
    image.disabled = image.parentElement.title !== "";
    if (other) this.#choose(takesImages(model) || (this.#image && !image.disabled) ? "image" : "json");
    byId("body-hint").textContent = this.#hint();
  }

  #hint() {
    const { inputs } = this.#model;
    const takes = inputs.map((input) => `${input.name}: ${typeText(input)}`).join("; ");
    const images = 'An image is {"b64": "…"}.';
    return `${takes ? `The model takes ${takes}, where the first dimension is the batch. ` : ""}${images} Ctrl + Enter sends.`;
  }

  #fillExample() {
    this.#example = exampleBody(this.#model);
    byId("body").value = this.#example;
    byId("body").placeholder = '{"instances": [{"name": value, …}]}';
  }

  #choose(kind) {
    this.form.elements.kind.value = kind;
    this.#showKind();
  }

  #showKind() {
    const image = this.form.elements.kind.value === "image";
    byId("image-part").hidden = !image;
    byId("json-part").hidden = image;
  }

  #acceptDrops() {
    const drop = byId("drop");
    const over = (on) => drop.classList.toggle("over", on);
    for (const type of ["dragenter", "dragover"]) {
      drop.addEventListener(type, (event) => { event.preventDefault(); over(true); });
    }
    drop.addEventListener("dragleave", () => over(false));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      over(false);
      if (event.dataTransfer.files[0]) this.#take(event.dataTransfer.files[0]);
    });
    // The browser would open a file that is dropped beside the field, in place of the page.
    for (const type of ["dragover", "drop"]) window.addEventListener(type, (event) => event.preventDefault());
  }

  #take(file) {
    this.#image = file;
    const preview = byId("preview");
    if (preview.src) URL.revokeObjectURL(preview.src);
    const size = byId("file-size");
    const kilobytes = `${(file.size / 1024).toFixed(1)} KB`;
    preview.onload = () => { size.textContent = `${preview.naturalWidth} × ${preview.naturalHeight}, ${kilobytes}`; };
    // The browser cannot show some formats, such as TIFF, that the server can read.
    preview.onerror = () => { size.textContent = `${kilobytes}, no preview`; };
    preview.src = URL.createObjectURL(file);
    byId("file-name").textContent = file.name;
    this.form.querySelector(".drop-empty").hidden = true;
    this.form.querySelector(".drop-full").hidden = false;
  }

  async #body() {
    if (this.form.elements.kind.value === "json") return byId("body").value;
    if (!this.#image) throw new Error("Choose an image first.");
    const name = this.#model.inputs[0]?.name ?? "image";
    return JSON.stringify({ instances: [{ [name]: { b64: await base64(this.#image) } }] });
  }

  async #send() {
    if (this.form.ariaBusy === "true" || byId("send").disabled) return;
    const { modelName, modelVersion } = this.#model;
    const path = `models/${encodeURIComponent(modelName)}/versions/${encodeURIComponent(modelVersion)}/predict?responseFormat=json`;
    this.#busy(true);
    let started = performance.now();
    try {
      const body = await this.#body();
      started = performance.now();
      const traceId = hex(16);
      const trace = this.traceUrl && { traceparent: `00-${traceId}-${hex(8)}-01` };
      const headers = { "content-type": "application/json", ...trace };
      const { predictions } = await call(path, { method: "POST", body, headers });
      const address = this.traceUrl.replace("{traceId}", traceId);
      showPredictions(this.result, predictions, performance.now() - started, address);
    } catch (error) {
      error.milliseconds = performance.now() - started;
      // The browser has no useful message for a server that cannot be reached.
      if (error instanceof TypeError) error.message = "The server cannot be reached.";
      showError(this.result, error);
    } finally {
      this.#busy(false);
    }
  }

  #busy(on) {
    this.form.ariaBusy = on ? "true" : null;
    byId("send").classList.toggle("busy", on);
    if (on && !this.result.children.length) this.result.replaceChildren(make("p", { class: "hint" }, "Waiting for the answer …"));
  }
}

/** Why an image alone is no request to the model; empty if it may be one. */
function withoutImage({ inputs }) {
  if (inputs.length > 1) return "This model has several inputs: send JSON, with images as base64";
  return inputs[0]?.dtype === "str" ? "This model takes texts: send JSON" : "";
}

/** So many random bytes as hexadecimal digits. */
function hex(bytes) {
  return [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
