// Runs on a serving engine: what the server does not tell, and how sure its colours are.

import { h, setText } from "./dom.js";
import { t } from "./words.js";
import { store } from "./store.js";

// How the inferred accepted tokens compare with the server's own counts, in a sentence.
export function checkWords(check) {
  if (!check) return "";
  const told = check.server_accepted;
  const values = { told, inferred: check.inferred_accepted, hidden: check.hidden };
  const sentences = {
    confirmed: () => (told === null ? t("check_confirmed_length") : check.hidden ? t("check_confirmed_hidden", values) : t("check_confirmed", values)),
    differs: () => (told === null ? t("check_differs_length") : t("check_differs", values)),
    not_reported: () => t("check_not_reported"),
    not_finished: () => t("check_not_finished"),
  };
  const words = sentences[check.outcome]?.() ?? "";
  return check.uncertain_tokens ? `${words} ${t("check_uncertain", { count: check.uncertain_tokens })}` : words;
}

export class ServerNote {
  constructor() {
    this.check = h("p", { class: "server-check" });
    this.missing = h("p", { class: "hint" });
    this.box = h("div", { class: "server-note", hidden: true }, this.check, this.missing);
  }

  update() {
    const run = store.main;
    this.box.hidden = !run?.remote;
    if (this.box.hidden) return;
    setText(this.check, checkWords(run.finished?.summary?.check));
    setText(this.missing, t("server_missing"));
  }
}
