// "Learn": short lessons with figures from real runs; each ends with a question to guess first.

import { h, setText } from "./dom.js";
import { t, words } from "./words.js";
import { store } from "./store.js";
import { LESSONS } from "./lessons.js";
import { recording } from "./library.js";

const TERMS = [
  "target", "draft_model", "drafter", "proposal", "round", "gamma", "verify", "residual", "corrected", "bonus", "committed",
  "alpha", "efficiency", "tau", "c", "expected", "speedup", "lossless", "typical", "chain", "tree_mask", "lookup", "self", "keep", "prefill",
];
const SOURCES = ["leviathan", "chen", "stern", "specinfer", "medusa", "eagle", "eagle3", "skip", "layerskip", "lookup", "bench", "typical"];

// Gradio's page has a base address without the query, so that a plain link into the page would load it anew.
function goTo(event, name) {
  event.preventDefault();
  const title = document.getElementById(`title-${name}`);
  title.scrollIntoView({ block: "start" });
  title.focus({ preventScroll: true });
}

export class Learn {
  constructor(root) {
    root.classList.add("learn");
    this.root = root;
    this.guesses = new Map();
    this.language = "";
    this.lessons = []; // per lesson: its places in the page and the state in which they were filled
  }

  // The words stand for as long as the language does: a recording that arrives late fills its own lesson
  // alone, so that no other link or button is taken from under a reader's finger.
  update() {
    if (words.lang !== this.language) this.build();
    const room = this.room();
    LESSONS.forEach((lesson, i) => this.fill(lesson, this.lessons[i], room));
  }

  build() {
    this.language = words.lang;
    const focus = document.activeElement?.id;
    this.lessons = LESSONS.map(() => ({ figure: h("figure", { class: "lesson-figure" }), question: h("div", {}), state: "" }));
    this.root.replaceChildren(
      h("nav", { class: "contents", "aria-label": t("learn_contents") }, h("ol", {}, ...LESSONS.map((lesson) => h("li", {}, h("a", { href: `#lesson-${lesson.name}`, onclick: (event) => goTo(event, lesson.name) }, t(`lesson_${lesson.name}`)))))),
      ...LESSONS.map((lesson, i) => this.lesson(lesson, i + 1, this.lessons[i])),
      this.glossary(), this.sources());
    if (focus && this.root.contains(document.getElementById(focus))) document.getElementById(focus).focus();
  }

  lesson({ name, paragraphs }, number, { figure, question }) {
    return h("section", { class: "lesson", id: `lesson-${name}`, "aria-labelledby": `title-${name}` },
      h("h2", { id: `title-${name}`, tabindex: "-1" }, `${number} · ${t(`lesson_${name}`)}`),
      h("div", { class: "lesson-body" },
        h("div", { class: "lesson-words" }, ...Array.from({ length: paragraphs }, (_, i) => h("p", {}, t(`lesson_${name}_${i + 1}`)))),
        figure),
      question);
  }

  fill(lesson, place, room) {
    const [pair, other] = [lesson.recording, lesson.other].map((name) => (name ? recording(name, () => store.changed()) : null));
    const state = `${Math.round(room / 40)} ${[pair, other].map((one) => (one === undefined ? "?" : one ? 1 : 0))} ${this.guesses.get(lesson.name)}`;
    if (state === place.state) return;
    place.state = state;
    const focus = document.activeElement?.id;
    place.figure.replaceChildren(this.figure(lesson, pair, room), h("figcaption", {}, pair ? this.caption(lesson, pair) : ""));
    const question = this.question(lesson, pair, other);
    place.question.replaceWith(question);
    place.question = question;
    if (focus && question.contains(document.getElementById(focus))) document.getElementById(focus).focus();
  }

  figure(lesson, pair, room) {
    if (pair === undefined) return h("p", { class: "hint" }, "…");
    return (pair && lesson.figure(pair, room)) ?? h("p", { class: "hint" }, t("lesson_no_recording"));
  }

  // Width of a figure: beside its words where there is room for both (views.css).
  room() {
    const all = this.root.clientWidth || 900;
    return all > 760 ? (all - 44) * 0.51 : all;
  }

  caption(lesson, { main }) {
    const { started } = main;
    return `${t(`lesson_${lesson.name}_figure`)} ${t("lesson_from", { drafter: started.drafter, model: started.model, dtype: started.dtype, device: started.environment?.device_name ?? started.device })}`;
  }

  question({ name, answer }, pair, other) {
    const result = pair && (other !== undefined) ? answer(pair, other) : null;
    if (!result) return h("div", {});
    const guess = this.guesses.get(name);
    const options = [0, 1, 2].map((i) => h("button", {
      type: "button", id: `guess-${name}-${i}`, "aria-pressed": String(guess === i),
      class: guess === undefined ? "" : i === result.right ? "right" : guess === i ? "wrong" : "",
      onclick: () => { this.guesses.set(name, i); this.update(); },
    }, t(`question_${name}_${i}`, result.values)));
    const told = guess === undefined ? "" : `${t(guess === result.right ? "guess_right" : "guess_wrong")} ${t(`question_${name}_answer`, result.values)}`;
    return h("div", { class: "question" }, h("p", { class: "ask" }, t(`question_${name}`, result.values)), h("div", { class: "options" }, ...options), h("p", { class: "told", role: "status" }, told));
  }

  glossary() {
    return h("section", { class: "glossary" }, h("h2", {}, t("glossary")), h("dl", {}, ...TERMS.map((term) => h("div", {}, h("dt", {}, t(`term_${term}`)), h("dd", {}, t(`term_${term}_is`))))));
  }

  sources() {
    return h("section", {}, h("h2", {}, t("sources")), h("p", { class: "sd-prose" }, t("sources_about")), h("ol", { class: "sources" }, ...SOURCES.map((name) => h("li", {}, t(`source_${name}`)))));
  }
}
