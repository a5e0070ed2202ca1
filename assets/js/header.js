// Title, state of the model, light or dark, large type for a projector.

import { h, setText } from "./dom.js";
import { t, words } from "./words.js";

function dark() {
  return document.body.classList.contains("dark");
}

export class Header {
  constructor(root) {
    this.title = h("h1");
    this.subtitle = h("p", { class: "subtitle" });
    this.model = h("p", { class: "model", role: "status", id: "model-state" });
    this.theme = h("button", { type: "button", onclick: () => this.flipTheme() });
    this.large = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.flipSize() });
    root.classList.add("header");
    root.append(this.title, this.subtitle, this.model, h("div", { class: "tools" }, this.theme, this.large));
    this.state = { state: "loading" };
    this.poll();
  }

  async poll() {
    try {
      const answer = await fetch("specdemo/status.json");
      if (answer.ok) this.state = await answer.json();
    } catch {
      // The server is away for a moment: ask again.
    }
    this.update();
    if (this.state.state === "loading") setTimeout(() => this.poll(), 700);
  }

  flipTheme() {
    document.body.classList.toggle("dark");
    document.dispatchEvent(new Event("specdemo:theme"));
  }

  flipSize() {
    const on = document.documentElement.classList.toggle("projector");
    document.dispatchEvent(new Event("specdemo:theme")); // charts take their type size from the page
    this.large.setAttribute("aria-pressed", String(on));
  }

  update() {
    setText(this.title, t("title"));
    setText(this.subtitle, t("subtitle"));
    setText(this.theme, t("theme"));
    setText(this.large, t("projector"));
    const { state, message, model, dtype, device } = this.state;
    let line = t(`status_${state}`, { why: message });
    if (state === "live") line += ` ${model} · ${dtype} · ${device.toUpperCase()}`;
    if (state === "loading" && message) line += ` ${message}`;
    setText(this.model, line);
    this.model.dataset.state = state;
  }
}
