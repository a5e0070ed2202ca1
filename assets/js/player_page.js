// Entry of an exported page: the runs lie in the page itself; nothing is loaded.

import { h, setText } from "./dom.js";
import { t, words, setLanguage } from "./words.js";
import { store } from "./store.js";
import { player } from "./player.js";
import { Live } from "./live.js";
import { SmallChart } from "./smallchart.js";
import { RoundView } from "./round.js";

export function startExportedPage(texts) {
  words.all = texts;
  const { lang, runs } = JSON.parse(document.getElementById("specdemo-data").textContent);
  setLanguage(lang);
  if (window.matchMedia("(prefers-color-scheme: dark)").matches) document.body.classList.add("dark");
  const title = h("h1", {}, t("exported_title"));
  const about = h("p", { class: "subtitle" }, t("exported_about"));
  const live = h("div", { class: "sd-view" });
  const round = h("div", { class: "sd-view" });
  const heading = h("h2", {}, t("tab_round"));
  const header = h("header", { class: "sd-view header" }, title, about);
  document.body.append(h("main", { class: "exported" }, header, live, heading, round));
  const views = [new Live(live, () => new SmallChart()), new RoundView(round)];
  store.listen(() => { for (const view of views) view.update(); });
  for (const slot of ["plain", "main"]) {
    if (!runs[slot]) continue;
    store.open(slot);
    for (const line of runs[slot]) store.slot(slot).push(JSON.parse(line), line);
  }
  store.label = { kind: "file" };
  setText(document.querySelector("title"), t("exported_title"));
  player.play(0);
  if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) player.seek(Infinity);
}
