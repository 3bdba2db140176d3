// -------------------------------------------------------------- what every GPU has sent and received

const WAYS = ["sent", "received"];

/** A row per GPU: two bars with their numbers. To assistive technology it is a table. */
class CounterTable {
  constructor(lane, text, scale) {
    Object.assign(this, { lane, scale });
    const heading = (words) => make("span", { role: "columnheader" }, words);
    const head = make("div", { class: "row head", role: "row" }, heading(say(text, "gpu")),
      ...WAYS.map((way) => heading(say(text, way, { unit: scale.unit }))));
    this.counters = [];
    const rows = Array.from({ length: lane.n }, (_, rank) => this.drawRow(rank));
    this.node = make("div", { class: `counters${lane.n > MANY ? " many" : ""}`, role: "table",
      "aria-label": say(text, "counters", { title: lane.title }) }, head, ...rows);
  }

  drawRow(rank) {
    const { lane, scale } = this;
    const cells = WAYS.map((way) => {
      const total = lane[`${way}_bytes`][rank];
      const fill = make("i", {});
      const ghost = make("s", { style: `transform:scaleX(${total / scale.largest})` });
      const number = make("span", { class: "number", "data-testid": `${way}-${lane.name}-${rank}` });
      this.counters.push({ way, rank, fill, number });
      return make("div", { class: "cell", role: "cell" }, make("div", { class: "bar" }, ghost, fill), number);
    });
    const bottleneck = rank === lane.bottleneck ? " bottleneck" : "";
    return make("div", { class: `row${bottleneck}`, role: "row", "data-rank": rank },
      make("span", { class: "rank", role: "rowheader" }, String(rank)), ...cells);
  }

  update(state) {
    for (const counter of this.counters) {
      const { way, rank, fill, number } = counter;
      const bytes = state[way][rank];
      if (bytes === counter.shown) continue; // most stand still, and a write costs a layout
      counter.shown = bytes;
      fill.style.transform = `scaleX(${bytes / this.scale.largest})`;
      write(number, this.scale.number(bytes));
      number.dataset.value = bytes;
    }
  }
}

const PROFILE = 100; // height of a profile in its own units

/** For a crowd: the same bars side by side, one thin column per GPU, and what they say in words.
 *  The numbers of every GPU are in the moment's table. */
class CounterProfile {
  constructor(lane, text, scale) {
    Object.assign(this, { lane, text, scale });
    this.profiles = WAYS.map((way) => this.drawProfile(way));
    const ends = [say(text, "gpu_number", { rank: 0 }), String(lane.n - 1)];
    this.node = make("div", { class: "counters profile" }, ...this.profiles.map(({ node }) => node),
      make("div", { class: "ends", "aria-hidden": "true" }, ...ends.map((words) => make("span", {}, words))));
  }

  drawProfile(way) {
    const { lane, text } = this;
    const all = Array.from({ length: lane.n }, (_, rank) => rank);
    const others = all.filter((rank) => rank !== lane.bottleneck);
    const [ghost, bars, hot] = ["ghost", "bars", "bars bottleneck"]
      .map((kind) => make("s:path", { class: kind }));
    set(ghost, { d: this.path(all, lane[`${way}_bytes`]) });
    const columns = all.map((rank) => make("s:rect", { class: "column", "data-rank": rank, x: rank, y: 0,
      width: 1, height: PROFILE }, tip(say(text, "gpu_number", { rank }))));
    const numbers = make("span", { "data-testid": `${way}-${lane.name}` });
    const svg = make("s:svg", { viewBox: `0 0 ${lane.n} ${PROFILE}`, preserveAspectRatio: "none",
      role: "img", "aria-label": say(text, "counters", { title: lane.title }) }, ghost, bars, hot, ...columns);
    const name = make("span", {}, say(text, way, { unit: this.scale.unit }));
    const head = make("div", { class: "head" }, name, numbers);
    return { way, others, bars, hot, numbers, node: make("div", {}, head, svg) };
  }

  /** Columns of the heights of `bytes`, as one path: a frame writes two or three of them. */
  path(ranks, bytes) {
    return ranks.map((rank) => {
      const height = (PROFILE * bytes[rank]) / this.scale.largest;
      return `M${rank + 0.1} ${PROFILE}v${-height.toFixed(2)}h.8V${PROFILE}z`;
    }).join("");
  }

  update(state) {
    const { lane, text, scale } = this;
    for (const { way, others, bars, hot, numbers } of this.profiles) {
      const bytes = state[way];
      set(bars, { d: this.path(others, bytes) });
      const amounts = others.map((rank) => bytes[rank]);
      const ends = [Math.min(...amounts), Math.max(...amounts)].map(scale.number);
      const range = ends[0] === ends[1] ? ends[0] : ends.join("–");
      const words = lane.bottleneck === null ? say(text, "each_gpu", { range })
        : say(text, "hot_and_others", { rank: lane.bottleneck, range,
          number: scale.number(bytes[lane.bottleneck]) });
      if (lane.bottleneck !== null) set(hot, { d: this.path([lane.bottleneck], bytes) });
      write(numbers, words);
    }
  }
}
