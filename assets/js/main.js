// Entry: makes the views when their places appear, and feeds them.

import { TEXT } from "../text.js";
import { t, words, setLanguage } from "./words.js";
import { h, reducedMotion } from "./dom.js";
import { Early, guessLanguage } from "./early.js";
import { store } from "./store.js";
import { player } from "./player.js";
import { Live } from "./live.js";
import { RaceChart } from "./plot.js";
import { RoundView } from "./round.js";
import { Lossless, parting } from "./lossless.js";
import { Why, trace } from "./why.js";
import { Compare } from "./compare.js";
import { Load } from "./load.js";
import { Learn } from "./learn.js";
import { exportHtml } from "./export.js";
import { texts } from "./library.js";
import { Header } from "./header.js";

words.all = TEXT;

const MAKERS = {
  header: (root) => new Header(root),
  live: (root) => new Live(root, () => new RaceChart(), { exportHtml: (slots) => exportHtml(slots, words.lang) }),
  round: (root) => new RoundView(root),
  lossless: (root) => new Lossless(root),
  why: (root) => new Why(root),
  compare: (root) => new Compare(root),
  load: (root) => new Load(root),
  learn: (root) => new Learn(root),
};
const views = [];

export function refresh() {
  for (const view of views) {
    if (!view.root.isConnected) continue;
    if (view.root.offsetParent === null && view.drawn) {
      view.late = true; // its tab is closed: draw it when it opens
      continue;
    }
    view.drawn = true;
    view.view.update();
  }
}

function mount(root, name) {
  if (root.dataset.mounted || !(name in MAKERS)) return;
  root.dataset.mounted = name;
  if (name === "live" && early) {
    early.moveTo(root);
    views[0].root = root;
    early = null;
  } else views.push({ root, view: MAKERS[name](root) });
  new ResizeObserver(() => store.changed()).observe(root);
  store.changed();
}

// Plays a recorded pair of runs (plain and speculative), as a race.
async function playRecording(name) {
  const [main, plain] = await texts(name);
  if (!main || store.main) return; // a live run came first
  const reset = { type: "page", do: "reset", slots: ["main", "plain"], label: { kind: "recorded", name } };
  let text = `${JSON.stringify(reset)}\n`;
  if (plain) text += `{"type":"page","do":"open","slot":"plain"}\n${plain.trim()}\n`;
  text += `{"type":"page","do":"open","slot":"main"}\n${main.trim()}\n`;
  text += '{"type":"page","do":"status","state":"recorded"}\n';
  store.feed(text, "live");
  if (reducedMotion()) player.stop();
  else player.play(0);
}

function bus(value, name = "live") {
  if (!value) return;
  if (name === "live") player.stop();
  store.feed(value, name);
}

// Characters of the prompt among the values that go to the server (after language and conversation).
function promptSize(values) {
  return String([...(values[2] ?? "")].length);
}

// The address of this page with prompt and settings in it, for the clipboard.
async function share(names, values) {
  const all = Object.fromEntries(names.map((name, i) => [name, values[i]]));
  const wanted = ["prompt", "drafter", "mode", "length", "temperature", "top_p", "top_k", "seed", "baseline", "rule"];
  const method = String(all.drafter).split("@")[0];
  const query = new URLSearchParams({ lang: words.lang });
  for (const name of [...wanted, ...names.filter((one) => one.startsWith(`${method}.`))]) query.set(name, String(all[name] ?? ""));
  const link = `${location.origin}${location.pathname}?${query}`;
  try {
    await navigator.clipboard.writeText(link);
    store.statuses.set("live", { state: "shared", key: "shared" });
  } catch {
    window.prompt(t("share"), link); // no clipboard without a secure origin: let the reader copy
  }
  store.changed();
}

store.listen(refresh);
words.listeners.add(() => store.changed());
window.specdemo = { mount, bus, store, player, setLanguage, share, playRecording, trace, parting, promptSize };
setLanguage(guessLanguage());
let early = null;
if (!window.specdemoWaiting) { // else Gradio was faster
  early = new Early();
  views.push({ root: early.stage, view: MAKERS.live(early.stage) });
}
if (!store.main) playRecording("repeat");
// The chart's library is large: it comes after all that is needed to begin.
document.head.append(h("script", { src: "specdemo/plotly.min.js", async: true, onload: () => store.changed() }));
for (const job of window.specdemoWaiting ?? []) job(window.specdemo);
window.specdemoWaiting = { push: (job) => job(window.specdemo) };
