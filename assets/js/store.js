// The one place where runs live. The server sends a growing text of JSON lines; each line is an event
// of a run, or a word to the page ({"type": "page", ...}). Views ask to be told about changes.

import { Run } from "./run.js";

// A copy with memory of its own: a browser keeps a part of a text as a view into the whole, and so every
// line of a run would hold on to the text of the update in which it came.
const copied = (text) => new TextDecoder().decode(new TextEncoder().encode(text));

export class Store {
  constructor() {
    this.runs = new Map();
    this.data = new Map(); // what the server measured for a tab, by name
    this.current = new Map(); // the slot that each feed fills now
    this.time = Infinity; // decode time shown; Infinity: everything there is
    this.round = 0; // the round that "One round" shows
    this.label = null; // where the shown run comes from: {kind: "recorded" | "live" | "file"}
    this.statuses = new Map(); // what the server says it is doing, by feed
    this.listeners = new Set();
    this.feeds = new Map();
    this.scheduled = false;
  }

  // `text` only ever grows; one that does not continue the last one is another run, or a later part of
  // the same run, which repeats lines (specdemo/ui/views/bus.py). What comes after a line that was never
  // seen waits: the whole text comes at the end.
  feed(text, name = "live") {
    const feed = this.feeds.get(name) ?? { length: 0, head: "", serial: null, seen: 0 };
    this.feeds.set(name, feed);
    const head = text.slice(0, text.indexOf("\n") + 1);
    if (head && (text.length < feed.length || head !== feed.head)) this.begin(feed, copied(head));
    if (feed.at > feed.seen) return;
    const end = text.lastIndexOf("\n") + 1;
    const fresh = copied(text.slice(feed.length, end));
    feed.length = Math.max(feed.length, end);
    for (const line of fresh.split("\n")) {
      if (!line || (feed.at += 1) <= feed.seen) continue;
      feed.seen = feed.at;
      this.line(line, name);
    }
    if (fresh) this.changed();
  }

  // `feed.at`: the lines before the next one of this text; `feed.seen`: those that came in any text of the run.
  begin(feed, head) {
    const { do: what, serial = null, first = 0 } = JSON.parse(head);
    if (serial === null || serial !== feed.serial) feed.seen = 0;
    Object.assign(feed, { head, serial, at: first, length: what === "more" ? head.length : 0 });
  }

  line(line, feed) {
    const event = JSON.parse(line);
    if (event.type !== "page") this.slot(this.current.get(feed) ?? "main").push(event, line);
    else if (event.do === "open") this.open(event.slot, feed).file = event.file ?? null;
    else if (event.do === "reset") this.reset(event, feed);
    else if (event.do === "status") this.statuses.set(feed, event);
    else if (event.do === "data") this.data.set(event.name, event.value);
  }

  reset(event, feed) {
    for (const slot of event.slots) this.runs.delete(slot);
    this.statuses.set(feed, { state: "running" });
    if (!event.slots.includes("main")) return;
    this.label = event.label ?? this.label;
    this.time = Infinity;
    this.round = 0;
  }

  open(slot, feed = "live") {
    this.current.set(feed, slot);
    const run = new Run(slot);
    this.runs.set(slot, run);
    return run;
  }

  slot(name) {
    return this.runs.get(name) ?? this.open(name);
  }

  status(feed) {
    return this.statuses.get(feed) ?? { state: "idle" };
  }

  get main() {
    return this.runs.get("main") ?? null;
  }

  get plain() {
    return this.runs.get("plain") ?? null;
  }

  // The rounds of a run that are on show now.
  shown(run) {
    return run ? run.roundsAt(this.time) : 0;
  }

  // Decode speed of the run so far against plain decoding's; null until both were measured.
  speedup(count) {
    const { main, plain } = this;
    if (!main || !plain || !plain.finished || !plain.tokens.length) return null;
    const now = main.figures(count);
    return now && now.rate ? now.rate / plain.figures().rate : null;
  }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // Tells the views soon: with the next frame, and never so often that they fill the machine's time.
  changed() {
    if (this.scheduled) return;
    this.scheduled = true;
    const go = () => {
      if (!this.scheduled) return;
      this.scheduled = false;
      const began = performance.now();
      for (const listener of this.listeners) listener();
      const ended = performance.now();
      this.next = ended + 2 * (ended - began);
    };
    const wait = Math.max(0, (this.next ?? 0) - performance.now());
    if (wait > 20) setTimeout(go, wait);
    else {
      requestAnimationFrame(go);
      setTimeout(go, 250); // a hidden page gets no animation frames
    }
  }
}

export const store = new Store();
