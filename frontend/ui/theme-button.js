import { byId, setText } from "./dom.js";

/** Let the button of the page change between light and dark. */
export function setUpTheme() {
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
