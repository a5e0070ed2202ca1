// Replay, speed, scrubbing and downloads: what can be done with the run on show.

import { h, save, setText } from "./dom.js";
import { t, number } from "./words.js";
import { store } from "./store.js";
import { player } from "./player.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];

export class Controls {
  // `options.exportHtml(slots)` makes the self-contained page; without it there are no downloads.
  constructor(options = {}) {
    this.options = options;
    this.play = h("button", { type: "button", class: "play", onclick: () => player.toggle() });
    this.slider = h("input", { type: "range", min: 0, max: 1000, value: 1000, oninput: () => this.seek() });
    this.clock = h("span", { class: "clock" });
    this.speed = h("select", { onchange: () => { player.speed = Number(this.speed.value); } },
      ...SPEEDS.map((x) => h("option", { value: x, selected: x === 1 }, `${x}×`)));
    this.speedName = h("span", { class: "sr-only" });
    this.jsonl = h("button", { type: "button", class: "quiet", onclick: () => this.saveJsonl() });
    this.html = h("button", { type: "button", class: "quiet", onclick: () => this.saveHtml() });
    const downloads = options.exportHtml ? [this.jsonl, this.html] : [];
    this.box = h("div", { class: "controls" }, this.play, this.slider, this.clock,
      h("label", { class: "speed" }, this.speedName, this.speed), ...downloads);
  }

  seek() {
    player.pause();
    player.seek((Number(this.slider.value) / 1000) * player.length);
  }

  saveJsonl() {
    if (store.main?.lines.length) save("specdemo-run.jsonl", "application/jsonl", `${store.main.lines.join("\n")}\n`);
  }

  async saveHtml() {
    const page = await this.options.exportHtml(["plain", "main"]);
    if (page) save("specdemo-run.html", "text/html", page);
  }

  update() {
    const { length } = player;
    const time = Math.min(store.time, length);
    setText(this.play, t(player.playing ? "pause" : store.plain ? "replay_race" : "replay"));
    this.play.disabled = !store.main?.rounds.length;
    this.slider.setAttribute("aria-label", t("replay_position"));
    if (document.activeElement !== this.slider || player.playing) this.slider.value = length ? (1000 * time) / length : 1000;
    this.slider.setAttribute("aria-valuetext", `${number(time / 1000, 2)} s`);
    setText(this.clock, `${number(time / 1000, 2)} / ${number(length / 1000, 2)} s`);
    setText(this.speedName, t("replay_speed"));
    setText(this.jsonl, t("download_jsonl"));
    setText(this.html, t("download_html"));
    this.jsonl.disabled = this.html.disabled = !store.main?.finished;
  }
}
