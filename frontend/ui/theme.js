// Runs before the page is painted, or a dark page would flash in light.
(() => {
  const chosen = localStorage.getItem("cluster-serving-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
