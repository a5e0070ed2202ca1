// A run folded from its events (the browser's twin of specdemo/run.py). Times are decode times in
// milliseconds, summed from the events themselves, so a replay has the pace of the recording.

export class Run {
  constructor(slot) {
    this.slot = slot;
    this.uid = Run.count = (Run.count ?? 0) + 1;
    this.lines = [];
    this.file = null; // the name of the file it was read from
    this.started = null;
    this.finished = null;
    this.rounds = [];
    this.tokens = [];
    this.open = null; // a round drafted, not yet verified
    this.time = 0;
    this.totals = { draft: 0, verify: 0, overhead: 0, accepted: 0, rejected: 0, drafted: 0 };
  }

  push(event, line) {
    this.lines.push(line);
    if (event.type === "started") this.started = event;
    else if (event.type === "drafted") this.open = this.begin(event);
    else if (event.type === "verified") this.close(event);
    else if (event.type === "finished") this.finished = event;
  }

  begin(event) {
    return { number: event.round, start: this.time, draftMs: event.ms, nodes: event.nodes, source: event.source ?? "" };
  }

  close(event) {
    const round = this.open ?? this.begin({ round: event.round, ms: 0, nodes: [] });
    this.open = null;
    round.verifyMs = event.ms;
    round.overheadMs = event.overhead_ms ?? 0;
    round.targetMs = event.target_ms ?? null;
    round.verdicts = event.verdicts;
    round.first = this.tokens.length;
    round.index = this.rounds.length;
    round.remote = this.remote;
    round.tokens = event.tokens;
    this.time += round.draftMs + round.verifyMs + round.overheadMs;
    round.end = this.time;
    for (const token of event.tokens) this.tokens.push({ ...token, round, index: this.tokens.length });
    round.last = this.tokens.length;
    const totals = this.totals;
    totals.draft += round.draftMs;
    totals.verify += round.verifyMs;
    totals.overhead += round.overheadMs;
    totals.drafted += round.nodes.length;
    for (const verdict of event.verdicts) {
      if (verdict.judgement === "accepted") totals.accepted += 1;
      else if (verdict.judgement === "rejected") totals.rejected += 1;
    }
    round.sums = { ...totals };
    this.rounds.push(round);
  }

  // How many rounds were finished `ms` milliseconds into the decode time.
  roundsAt(ms) {
    if (ms >= this.time) return this.rounds.length;
    let low = 0;
    let high = this.rounds.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rounds[middle].end <= ms) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // On a serving engine: its rounds are steps of a stream.
  get remote() {
    return Boolean(this.started?.environment?.server);
  }

  // As specdemo/remote/summary.py counts: without the first step, which comes with the prompt's pass.
  // What a server does not tell is null.
  remoteFigures(count) {
    const round = this.rounds[count - 1];
    const tokens = round.last - this.rounds[0].last;
    const end = count === this.rounds.length ? this.finished?.summary : null;
    return {
      tokens: round.last, rounds: count, tau: count > 1 ? tokens / (count - 1) : null,
      alpha: end?.acceptance_rate ?? null, efficiency: end?.draft_efficiency ?? null,
      rate: round.end > 0 ? (1000 * tokens) / round.end : null, time: round.end,
      draft: null, verify: null, overhead: null, accepted: null, rejected: null, drafted: null,
    };
  }

  // Figures after `count` rounds, by the definitions of specdemo/metrics.py.
  figures(count = this.rounds.length) {
    if (!count) return null;
    if (this.remote) return this.remoteFigures(count);
    const round = this.rounds[count - 1];
    const sums = round.sums;
    const judged = sums.accepted + sums.rejected;
    return {
      tokens: round.last,
      rounds: count,
      tau: round.last / count,
      alpha: judged ? sums.accepted / judged : null,
      efficiency: sums.drafted ? sums.accepted / sums.drafted : null,
      rate: round.end > 0 ? (1000 * round.last) / round.end : null,
      time: round.end,
      ...sums,
    };
  }

  // Share of tested drafts accepted at each depth of the draft (1 = the first draft token).
  acceptanceByDepth() {
    const counts = [];
    for (const round of this.rounds) {
      const depth = [];
      round.nodes.forEach((node, i) => {
        depth[i] = node.parent < 0 ? 0 : depth[node.parent] + 1;
        const cell = (counts[depth[i]] ??= { accepted: 0, judged: 0, reached: new Set() });
        const judgement = round.verdicts[i].judgement;
        if (judgement !== "not_judged") cell.reached.add(round);
        if (judgement === "accepted") cell.accepted += 1;
      });
    }
    return counts.map((cell) => ({ rate: cell.reached.size ? cell.accepted / cell.reached.size : null, tested: cell.reached.size }));
  }

  get text() {
    return this.tokens.map((token) => token.text).join("");
  }
}
