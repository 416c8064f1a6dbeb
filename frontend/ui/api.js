import { byId } from "./dom.js";

const KEY = "cluster-serving-api-key";

/** What the server answers with an error: its message, code and status. */
export class ServerError extends Error {
  constructor(message, code, status, content) {
    super(message);
    Object.assign(this, { code, status, content });
  }
}

let asking = null;

/** Fetch JSON of a relative path; asks for an API key if the server wants one. */
export async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
    const response = await fetch(path, { ...options, headers, cache: "no-store" });
    const content = await response.json().catch(() => null);
    if (response.ok) return content;
    const message = content?.error ?? `the server answered ${response.status} ${response.statusText}`;
    if (response.status !== 401) throw new ServerError(message, content?.code ?? "", response.status, content);
    // Another call may have received the key since this one was sent.
    if (sessionStorage.getItem(KEY) === key) await askForKey(key ? message : "This server asks for an API key.");
  }
}

function askForKey(reason) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    byId("key-reason").textContent = reason;
    byId("key").value = "";
    // The page shows nothing without a key, so the dialog stays open.
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => {
      sessionStorage.setItem(KEY, byId("key").value);
      asking = null;
      resolve();
    };
    dialog.showModal();
  });
  return asking;
}
