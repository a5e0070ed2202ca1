// The first second: Gradio is still building the page, and the recorded run already plays, on the same
// stage at the same place. Once the page is there, the stage moves into it as it is.

import { h } from "./dom.js";
import { t, words } from "./words.js";

const TABS = ["live", "round", "lossless", "why", "compare", "learn"];

// The language of the link or of the browser, until the server says which one it is.
export function guessLanguage() {
  const asked = new URLSearchParams(location.search).get("lang");
  if (asked in words.all) return asked;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

function guessTheme() {
  const asked = new URLSearchParams(location.search).get("__theme");
  const dark = asked === "dark" || (asked !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.body.classList.toggle("dark", dark);
}

export class Early {
  constructor() {
    guessTheme();
    this.stage = h("div", { class: "sd-view" });
    this.box = h("div", { id: "early" },
      h("header", { class: "sd-view header" }, h("h1", {}, t("title")), h("p", { class: "subtitle" }, t("subtitle")), h("p", { class: "model" }, t("status_loading"))),
      h("div", { class: "sd-view early-form", "aria-hidden": "true" },
        h("p", { class: "early-tabs" }, ...TABS.map((name) => h("span", {}, t(`tab_${name}`)))),
        h("p", { class: "early-prompt" }, t("prompt_placeholder"))),
      this.stage);
    document.body.prepend(this.box);
  }

  // What is on the stage goes on playing in its place of the page.
  moveTo(root) {
    root.className = this.stage.className;
    root.append(...this.stage.childNodes);
    this.box.remove();
  }
}
