// ------------------------------------------------------------- this moment as a table, for reading

/** Under the player, folded: what is under way in each lane, and what every GPU has moved. It is
 *  written only while it is open and the clock rests, so that it costs a running player nothing. */
class MomentTable {
  constructor(lanes, text, scale, sayTime, open = false) {
    Object.assign(this, { lanes, text, scale, sayTime, stale: true });
    this.body = make("div", { class: "moments" });
    this.node = make("details", { class: "moment", "data-testid": "moment", open: open ? "" : null },
      make("summary", {}, say(text, "moment")), this.body);
    this.node.ontoggle = () => this.refresh();
  }

  /** `states` are the lanes' at the shown time; `resting` is whether the clock stands still. */
  update(states, resting) {
    Object.assign(this, { states, resting, stale: true });
    this.refresh();
  }

  refresh() {
    if (!(this.node.open && this.resting && this.stale)) return;
    this.stale = false;
    this.body.replaceChildren(...this.lanes.map((lane, row) => make("div", {},
      this.drawUnderWay(lane, this.states[row]), this.drawCounters(lane, this.states[row]))));
  }

  table(testid, caption, columns, rows) {
    const head = columns.map((words) => make("th", { scope: "col" }, words));
    return make("table", { "data-testid": testid }, make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))))));
  }

  drawUnderWay(lane, state) {
    const { text } = this;
    const rows = momentRows(lane, state);
    const columns = ["step", "from", "to", "chunk", "rate", "share", "arrives"]
      .map((name) => say(text, `moment_${name}`));
    const caption = say(text, rows.length ? "moment_under_way" : "moment_nothing",
      { title: lane.title, time: this.sayTime(state.time) });
    return this.table(`moment-${lane.name}`, caption, rows.length ? columns : [], rows.map((row) => [
      row.first === row.last ? `${row.first + 1}` : `${row.first + 1}–${row.last + 1}`,
      `${row.src}`, `${row.dst}`, this.sayChunk(lane, row),
      row.rate > 0 ? formatRate(row.rate) : "–", percent(text, row.share), formatTime(row.arrives_s)]));
  }

  sayChunk(lane, { chunk, carries }) {
    if (lane.chunks === 1) return say(this.text, "moment_all");
    return carries > 1 ? say(this.text, "moment_chunks", { carries }) : `${chunk}`;
  }

  drawCounters(lane, state) {
    const { text, scale } = this;
    const columns = [say(text, "gpu"), ...WAYS.map((way) => say(text, way, { unit: scale.unit }))];
    const rows = Array.from({ length: lane.n }, (_, rank) =>
      [`${rank}`, ...WAYS.map((way) => scale.number(state[way][rank]))]);
    return this.table(`moment-bytes-${lane.name}`, say(text, "counters", { title: lane.title }), columns, rows);
  }
}

