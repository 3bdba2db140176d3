
// ---------------------------------------------- step by step: the numbers, and every GPU's time

/** A lane with its chunk table: the numbers in every cell, and the history of the chosen one. */
class StepsView extends LaneView {
  drawMore() {
    const { lane, text } = this;
    const { dst: [rank = 0], chunk: [chunk = 0] } = lane.transfers;
    if (!(this.chosen?.rank < lane.n && this.chosen.chunk < lane.chunks)) this.chosen = { rank, chunk };
    this.followed = this.chosen.rank;
    this.rows = Array.from({ length: lane.n }, (_, rank) =>
      Array.from({ length: lane.chunks }, (_, chunk) => this.drawCell(rank, chunk)));
    const head = Array.from({ length: lane.chunks }, (_, chunk) =>
      make("th", { scope: "col" }, lane.n > MANY ? `c${chunk}` : say(text, "chunk_head", { chunk })));
    const kind = lane.n > MANY ? "cells many" : "cells";
    const table = make("table", { class: kind, role: "grid", "data-testid": "cells",
      "aria-label": say(text, "cells") },
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, say(text, "gpu")), ...head)),
    make("tbody", {}, ...this.rows.map((row, rank) => make("tr", { "data-rank": rank },
      make("th", { scope: "row" }, String(rank)), ...row.map(({ node }) => node)))));
    table.onkeydown = (event) => this.walk(event);
    this.history = make("tbody", {});
    this.historyTitle = make("caption", { "data-testid": "history-title" });
    const columns = ["history_step", "history_from", "history_arrives", "history_holds", "history_who"]
      .map((key) => make("th", { scope: "col" }, say(text, key)));
    const hint = say(text, lane.n > MANY ? "cells_hint_many" : "cells_hint");
    return [make("div", { class: "numbers" }, table, make("p", { class: "hint" }, hint)),
      make("table", { class: "history", "data-testid": "history" }, this.historyTitle,
        make("thead", {}, make("tr", {}, ...columns)), this.history)];
  }

  drawCell(rank, chunk) {
    const [values, bar] = [make("span", { class: "values" }), make("i", {})];
    const who = make("span", { class: "who", "data-of": `/${this.lane.n}` });
    const node = make("td", { role: "gridcell", "data-testid": `cell-${rank}-${chunk}` }, values, who, bar);
    node.onclick = () => this.chooseCell(rank, chunk);
    node.onfocus = node.onclick;
    return { node, values, who, bar };
  }

  /** Arrows move within the table; every other key is the player's. */
  walk(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const { n, chunks } = this.lane;
    const rank = Math.min(n - 1, Math.max(0, this.chosen.rank + by[0]));
    const chunk = Math.min(chunks - 1, Math.max(0, this.chosen.chunk + by[1]));
    this.rows[rank][chunk].node.focus();
  }

  chooseCell(rank, chunk) {
    if (this.chosen.rank === rank && this.chosen.chunk === chunk) return;
    this.chosen = { rank, chunk };
    this.choose(rank); // the player's GPU, which comes back as the one to follow
  }

  /** The chosen cell is one of the chosen GPU. */
  follow(rank) {
    if (rank !== null) this.chosen.rank = rank;
    super.follow(this.chosen.rank);
  }

  update(state) {
    super.update(state);
    const table = cellsAt(this.lane, state, state.time);
    this.rows.forEach((row, rank) => row.forEach((cell, chunk) =>
      this.updateCell(cell, table[rank][chunk], rank, chunk)));
    this.updateHistory(state.time);
  }

  updateCell(cell, { values, who, arriving, leaving }, rank, chunk) {
    const { lane, text, chosen } = this;
    const selected = chosen.rank === rank && chosen.chunk === chunk;
    const op = arriving && (lane.transfers.op[arriving.i] === ADD ? "add" : "copy");
    const done = who.length === lane.n;
    const classes = [arriving && `arriving ${op}`, leaving && "leaving", done && "done"]
      .filter(Boolean).join(" ");
    if (cell.classes !== classes || cell.selected !== selected) {
      Object.assign(cell, { classes, selected });
      set(cell.node, { class: classes, "aria-selected": selected, tabindex: selected ? 0 : -1 });
      if (!arriving) cell.bar.style.transform = "";
    }
    if (arriving) cell.bar.style.transform = `scaleX(${arriving.progress})`;
    const words = values.join(" ") || "–";
    if (words === cell.words && who === cell.shown) return;
    [cell.words, cell.shown] = [words, who];
    write(cell.values, words);
    const names = who.join(lane.n > 6 ? "" : "·"); // up to 8 GPUs: a digit each
    write(cell.who, lane.n > MANY ? String(who.length) : names);
    set(cell.node, { "aria-label": say(text, "cell", { rank, chunk, values: listNumbers(values),
      have: who.length, n: lane.n, who: who.join(", ") }) });
  }

  /** A line for what the cell began with, and one for each arrival; those to come are grey. */
  updateHistory(time) {
    const { lane, text, chosen: { rank, chunk } } = this;
    const { transfers: t, cells } = lane;
    const arrivals = arrivalsIn(lane, rank, chunk);
    const come = arrivals.filter((i) => t.receive_end_s[i] <= time).length;
    const key = `${rank},${chunk},${come}`;
    if (key === this.historyShown) return;
    this.historyShown = key;
    write(this.historyTitle, say(text, "history", { rank, chunk }));
    const line = (words, later) => make("tr", later ? { class: "later" } : {},
      ...words.map((word) => make("td", {}, String(word))));
    this.history.replaceChildren(
      line(["–", say(text, "history_own"), "", listNumbers(cells.start[rank][chunk]),
        cells.start[rank][chunk].length ? rank : "–"], false),
      ...arrivals.map((i, row) => line([t.step[i] + 1, say(text, "history_gpu", { rank: t.src[i] }),
        `${t.op[i] === ADD ? "+ " : "= "}${listNumbers(cells.sent[i])}`, listNumbers(cells.values[i]),
        cells.who[i].join("·")], row >= come)));
  }
}

const THIN = 12; // height of one direction's bar, in pixels

/** The time axis with two bars for every GPU, what it sends above what it receives. */
class GanttView extends TimelineView {
  narrowLeft() {
    return 52; // room for the GPUs' names
  }

  drawMore(y) {
    const [lane] = this.lanes;
    const pitch = 2 * THIN + 8;
    const nodes = Array.from({ length: lane.n }, (_, rank) => this.drawRank(lane, rank, y + 6 + pitch * rank));
    return { nodes, height: pitch * lane.n + 8 };
  }

  drawRank(lane, rank, y) {
    const { transfers: t } = lane;
    const bars = [];
    for (let i = 0; i < lane.count; i++) {
      if (t.src[i] === rank) bars.push(...this.bar(t, i, t.send_start_s[i], t.send_end_s[i], y, "out"));
      if (t.dst[i] === rank) {
        bars.push(...this.bar(t, i, t.receive_start_s[i], t.receive_end_s[i], y + THIN + 1, "in"));
      }
    }
    const waits = waitsOf(lane, rank).map(([start, end]) => make("s:line", { class: "wait",
      x1: this.x(start), x2: this.x(end), y1: y + THIN, y2: y + THIN }));
    const label = say(this.text, "gpu_number", { rank });
    return make("s:g", { class: "gpu-row", "data-rank": rank }, ...waits, ...bars,
      make("s:text", { x: this.left - 8, y: y + THIN, class: "rank-name" }, label));
  }

  bar(t, i, start, end, y, way) {
    const [from, to] = [this.x(start), this.x(end)];
    const gap = to - from > 4 ? 1 : 0;
    const kind = `${way} ${t.op[i] === ADD ? "add" : "copy"}`;
    const rect = make("s:rect", { x: from, y, width: Math.max(0.5, to - from - gap), height: THIN,
      class: kind });
    if (to - from < 22) return [rect];
    return [rect, make("s:text", { class: `chunk-number ${kind}`, x: (from + to) / 2, y: y + THIN / 2 },
      String(t.chunk[i]))];
  }
}
