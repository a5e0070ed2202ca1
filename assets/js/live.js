// The stage of the Live tab: speed-up and figures, the two streams, the chart, one token explained.

import { h, setText } from "./dom.js";
import { t, words } from "./words.js";
import { store } from "./store.js";
import { Stream } from "./stream.js";
import { Inspector } from "./inspector.js";
import { Speedup, Status, Voice } from "./status.js";
import { Controls } from "./controls.js";
import { ServerNote } from "./server.js";

const ORIGINS = ["accepted", "corrected", "bonus", "target"];

export class Legend {
  constructor() {
    this.box = h("ul", { class: "legend" });
    this.items = ORIGINS.map((origin) => {
      const name = h("span", { class: `token o-${origin}` });
      const why = h("span", { class: "why" });
      this.box.append(h("li", {}, name, " ", why));
      return { origin, name, why };
    });
  }

  update() {
    this.box.setAttribute("aria-label", t("legend"));
    for (const { origin, name, why } of this.items) {
      setText(name, t(`origin_${origin}`));
      setText(why, t(`origin_${origin}_short`));
    }
  }
}

// Where the run on show comes from: never leave it open whether it is live.
// What the engine saw of this device's kernels at its start (specdemo/probe.py).
const PROMISES = { bits: "promise_bits", distribution: "promise_distribution" };

export class Badge {
  constructor() {
    this.box = h("p", { class: "badge" });
  }

  update() {
    const started = store.main?.started;
    if (!started) {
      setText(this.box, "");
      return;
    }
    const kind = store.label?.kind ?? "live";
    const env = started.environment ?? {};
    const device = started.device.startsWith("cuda") ? "GPU" : started.device.startsWith("cpu") ? "CPU" : started.device;
    const parts = [
      t(`badge_${kind}`, { device }),
      started.model, started.drafter, env.server ? t("server_precision") : started.dtype,
      env.device_name ?? env.processor ?? env.cpu ?? env.name ?? "",
      `seed ${started.seed}`,
      t(env.server ? "server_promise" : started.lossless ? PROMISES[env.promise] ?? "lossless" : "lossy"),
    ];
    setText(this.box, parts.filter(Boolean).join(" · "));
    this.box.title = Object.entries({ ...env, ...started.settings }).map(([k, v]) => `${k}: ${JSON.stringify(v)}`).join("\n");
    this.box.classList.toggle("is-live", kind === "live");
  }
}

export class Live {
  constructor(root, makeChart, options = {}) {
    this.inspector = new Inspector();
    const pick = (token, span) => this.inspector.show(token, span);
    this.streams = { main: new Stream("main", pick), plain: new Stream("plain", pick) };
    this.heads = { main: h("h3"), plain: h("h3") };
    this.ghostBox = h("input", { type: "checkbox", onchange: () => this.streams.main.showGhosts(this.ghostBox.checked) });
    this.ghostName = h("span");
    this.prompt = h("p", { class: "prompt-echo", tabindex: "0" });
    this.turns = h("ol", { class: "turns", hidden: true });
    this.parts = [new Badge(), new Speedup(), new Status(), makeChart(), new Legend(), new Controls(options), new Voice("live", true), new ServerNote()];
    const [badge, speedup, status, chart, legend, controls, voice, serverNote] = this.parts.map((part) => part.box);
    this.plainLane = h("section", { class: "lane lane-plain" }, this.heads.plain, this.streams.plain.box);
    root.classList.add("live");
    root.append(
      voice, controls,
      h("div", { class: "stage" },
        h("div", { class: "top" }, speedup, status, serverNote),
        h("div", { class: "lanes" },
          badge, this.turns, this.prompt,
          h("section", { class: "lane lane-main" },
            h("div", { class: "lane-head" }, this.heads.main, h("label", { class: "switch" }, this.ghostBox, " ", this.ghostName)),
            this.streams.main.box),
          this.inspector.box, this.plainLane),
        h("div", { class: "side" }, chart, legend)),
    );
    this.run = null;
    this.said = null;
    words.listeners.add(() => { this.inspector.render(); });
  }

  update() {
    if (store.main !== this.run) {
      this.run = store.main;
      this.inspector.clear();
    }
    for (const stream of Object.values(this.streams)) stream.update();
    for (const part of this.parts) part.update();
    const started = store.main?.started;
    this.conversation(store.label?.turns ?? []);
    setText(this.heads.main, started ? t("lane_main", { drafter: started.drafter }) : t("lane_main_empty"));
    setText(this.heads.plain, t("lane_plain"));
    setText(this.ghostName, t("show_refused"));
    setText(this.prompt, started?.prompt ?? "");
    this.plainLane.hidden = !store.plain;
  }

  // What was said before in a conversation.
  conversation(turns) {
    if (turns === this.said) return;
    this.said = turns;
    this.turns.hidden = !turns.length;
    this.turns.replaceChildren(...turns.map((turn) => h("li", { class: `turn-${turn.role === "user" ? "user" : "model"}` }, turn.content)));
  }
}
