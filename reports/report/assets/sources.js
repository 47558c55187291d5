"use strict";
// A figure's link opens the part of the JSON that it came from.
(() => {
  let sources; // read when a figure is first asked for: it may be long
  const dialog = document.getElementById("source");
  const title = document.getElementById("source-title");
  const value = document.getElementById("source-value");
  const LONGEST = 20000;
  const open = () => {
    if (!location.hash.startsWith("#json=")) return;
    sources ??= JSON.parse(document.getElementById("sources").textContent);
    let target = location.hash.slice(6);
    try { target = decodeURIComponent(target); } catch { /* somebody's own hash: shown as it stands */ }
    const file = Object.keys(sources).find((name) => target.startsWith(name + "/"));
    title.textContent = target;
    if (file === undefined) {
      value.textContent = "This file is too large to be carried along; the path above leads to the figure in it.";
    } else {
      let found = sources[file];
      for (const part of target.slice(file.length + 1).split("/")) {
        const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
        found = found !== null && typeof found === "object" && Object.hasOwn(found, key) ? found[key] : undefined;
      }
      const text = found === undefined ? "nothing there" : JSON.stringify(found, null, 1);
      value.textContent = text.length > LONGEST ? text.slice(0, LONGEST) + "…" : text;
    }
    if (!dialog.open) dialog.showModal();
  };
  document.getElementById("source-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
  addEventListener("hashchange", open);
  open();
})();
