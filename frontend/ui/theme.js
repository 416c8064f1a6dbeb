// Runs before the first paint; otherwise a dark page would flash in light colours.
(() => {
  const chosen = localStorage.getItem("cluster-serving-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
