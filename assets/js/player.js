// The clock of a replay: moves the shown decode time at the recorded pace, some thirty times a second.

import { store } from "./store.js";

const BEAT = 30; // milliseconds

export class Player {
  constructor() {
    this.playing = false;
    this.speed = 1;
    this.last = 0;
  }

  get length() {
    return Math.max(...["main", "plain"].map((slot) => store.runs.get(slot)?.time ?? 0));
  }

  play(from = 0) {
    store.time = from;
    this.last = performance.now();
    if (!this.playing) {
      this.playing = true;
      requestAnimationFrame(() => this.tick());
    }
    store.changed();
  }

  tick() {
    if (!this.playing) return;
    const now = performance.now();
    if (now - this.last < BEAT) {
      requestAnimationFrame(() => this.tick());
      return;
    }
    store.time += (now - this.last) * this.speed;
    this.last = now;
    if (store.time >= this.length) {
      this.playing = false;
      store.time = Infinity;
    } else {
      requestAnimationFrame(() => this.tick());
    }
    store.changed();
  }

  pause() {
    this.playing = false;
    store.changed();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play(Number.isFinite(store.time) ? store.time : 0);
  }

  stop() {
    this.playing = false;
    store.time = Infinity;
  }

  seek(ms) {
    store.time = ms >= this.length ? Infinity : ms;
    store.changed();
  }
}

export const player = new Player();
