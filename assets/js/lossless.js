// "Is it lossless?": two texts side by side with the place where they part; drawn tokens against p.

import { h, setText, visible } from "./dom.js";
import { t, number, percent, words } from "./words.js";
import { store } from "./store.js";
import { plot, ticks } from "./svgplot.js";
import { Voice } from "./status.js";
import { common, textFrom } from "./diff.js";
import { Rules } from "./rules.js";

// What the server needs to measure the gap where the texts part.
export function parting() {
  const { main, plain } = store;
  if (!main?.finished || !plain?.finished || store.label?.kind !== "live" || store.label.chat) return "";
  const at = common(main.tokens, plain.tokens);
  if (at >= main.tokens.length || at >= plain.tokens.length) return "";
  return JSON.stringify({
    prompt: main.started.prompt, raw: Boolean(store.label.raw), run: main.uid,
    common: main.tokens.slice(0, at).map((x) => x.id), plain: plain.tokens[at].id, main: main.tokens[at].id,
  });
}

export class Lossless {
  constructor(root) {
    root.classList.add("lossless");
    this.voice = new Voice("lossless");
    this.title = h("h2");
    this.about = h("p", { class: "sd-prose" });
    this.verdict = h("p", { class: "verdict" });
    this.gap = h("p", { class: "gap" });
    this.texts = h("div", { class: "pair" });
    this.drawTitle = h("h2");
    this.drawAbout = h("p", { class: "sd-prose" });
    this.bug = h("p", { class: "bug" });
    this.result = h("div", { class: "result" });
    this.charts = h("div", { class: "pair" });
    this.rules = new Rules();
    root.append(this.voice.box, this.drawTitle, this.drawAbout, this.bug, this.result, this.charts, this.title, this.about, this.verdict, this.gap, this.texts, this.rules.box);
    this.drawn = "";
  }

  update() {
    this.voice.update();
    setText(this.title, t("same_title"));
    setText(this.about, t("same_about"));
    setText(this.drawTitle, t("draw_title"));
    setText(this.drawAbout, t("draw_about"));
    this.texts_();
    this.experiment();
    this.rules.update();
  }

  texts_() {
    const { main, plain } = store;
    const state = `${main?.uid}/${main?.tokens.length}/${plain?.uid}/${plain?.tokens.length}/${Boolean(main?.finished && plain?.finished)}/${words.lang}/${JSON.stringify(store.data.get("parting") ?? "")}`;
    if (state === this.drawn) return;
    this.drawn = state;
    setText(this.gap, "");
    if (!main?.finished || !plain?.finished) {
      setText(this.verdict, t("same_missing"));
      this.texts.replaceChildren();
      return;
    }
    const at = common(main.tokens, plain.tokens);
    const same = at === main.tokens.length && at === plain.tokens.length;
    const greedy = main.started.settings.temperature === 0;
    let key = same ? "same_yes" : greedy ? "same_parts" : "same_sampled";
    if (!main.started.lossless) key = same ? "same_yes" : "same_lossy";
    setText(this.verdict, t(key, { tokens: main.tokens.length, at: at + 1 }));
    this.verdict.classList.toggle("good", same);
    const gap = store.data.get("parting");
    if (!same && gap && gap.run === main.uid) {
      setText(this.gap, t(gap.tie ? "gap_tie" : "gap_bug", { gap: number(Math.abs(gap.gap), 4), tolerance: gap.tolerance, plain: gap.ranks[0], main: gap.ranks[1] }));
    } else if (!same && greedy) setText(this.gap, t(store.label?.kind === "live" ? "gap_unmeasured" : "gap_not_live"));
    this.texts.replaceChildren(textFrom(t("lane_plain"), plain, at), textFrom(t("lane_main", { drafter: main.started.drafter }), main, at));
  }

  experiment() {
    const data = store.data.get("lossless");
    if (!data) {
      setText(this.bug, t("draw_hint"));
      return;
    }
    if (data === this.data && words.lang === this.lang) return;
    this.data = data;
    this.lang = words.lang;
    setText(this.bug, `${t(`exhibit_${data.exhibit}`)}: ${t(`exhibit_${data.exhibit}_why`)}`);
    const fits = [["first", data.first], ["second", data.second]];
    this.result.replaceChildren(
      h("p", { class: "progress-words" }, t("draw_progress", { done: number(data.done, 0), draws: number(data.draws, 0) })),
      ...fits.map(([which, { fit }]) => h("p", { class: `finding ${fit.differs ? "differs" : "fits"}` },
        h("b", {}, t(`draw_${which}`)), " ",
        t("draw_numbers", { distance: number(fit.distance, 4), expected: number(fit.expected_distance, 4), g: number(fit.g, 1), degrees: fit.degrees, p: fit.p_value < 0.001 ? "< 0.001" : number(fit.p_value, 3) }), " ",
        t(fit.differs ? "draw_differs" : "draw_fits"))));
    this.charts.replaceChildren(...fits.map(([which, part]) => h("figure", {}, h("figcaption", {}, t(`draw_${which}`)), this.histogram(part))));
  }

  histogram({ bars, fit }) {
    const total = Math.max(1, fit.draws);
    const most = Math.max(0.05, ...bars.map((bar) => Math.max(bar.p, bar.count / total)));
    const name = (i) => {
      const bar = bars[Math.round(i)];
      if (!bar) return "";
      const text = bar.rest ? t("draw_rest", { count: bar.rest }) : visible(bar.text);
      return text.length > 11 ? `${text.slice(0, 10)}…` : text;
    };
    return plot({
      width: 520, height: 280, margin: { bottom: 70 }, label: t("draw_chart", { distance: number(fit.distance, 3) }),
      x: { min: -0.6, max: bars.length - 0.4, ticks: bars.map((_, i) => i), format: name, slant: true, label: "" },
      y: { min: 0, max: most * 1.1, format: (v) => percent(v), ticks: ticks(0, most * 1.1, 4) },
      items: [
        { kind: "bars", points: bars.map((bar, i) => [i, bar.count / total]), colour: fit.differs ? "--slower" : "--accepted-line", half: 0.32 },
        { kind: "bars", points: bars.map((bar, i) => [i, bar.p]), colour: "--ink", half: 0.42, outline: true },
      ],
    });
  }
}
