
// --------------------------------------------------------------- the time axis under the lanes

/** The common time axis: one row per strategy, phases, flags, bound, measured marks, playhead. */
class TimelineView {
  constructor(lanes, text, end, seek, changes = []) {
    Object.assign(this, { lanes, text, end, seek, changes });
    this.svg = make("s:svg", { class: "timeline", role: "img", "aria-label": say(text, "timeline") });
    this.head = make("s:svg", { class: "playhead", width: 10, "aria-hidden": "true" });
    this.node = make("div", { class: "axis-box" }, this.svg, this.head);
    const seekTo = (event) => {
      const x = event.clientX - this.node.getBoundingClientRect().left;
      seek(Math.min(1, Math.max(0, (x - this.left) / this.width)) * this.end);
    };
    this.node.onpointerdown = (event) => {
      this.node.setPointerCapture(event.pointerId);
      seekTo(event);
    };
    this.node.onpointermove = (event) => event.buttons && seekTo(event);
  }

  narrowLeft() {
    return 8;
  }

  /** Room for the lanes' names: about 13 px for a Chinese character, 7 for others. */
  namesWidth() {
    const width = ({ title }) => [...title].reduce((sum, c) => sum + (c > "\u2e80" ? 13 : 7), 14);
    return Math.max(118, ...this.lanes.map(width));
  }

  x(time) {
    return this.left + (time / this.end) * this.width;
  }

  /** Draws all that does not move, for a total width in pixels. */
  resize(total) {
    const narrow = total < 560;
    const right = 74;
    this.left = narrow ? this.narrowLeft() : this.namesWidth();
    this.width = Math.max(40, total - this.left - right);
    const ghost = this.lanes.some((lane) => lane.ghost) ? GHOST + 6 : 0;
    const [top, pitch] = [32, (narrow ? 50 : 32) + ghost];
    const below = top + pitch * this.lanes.length;
    const more = this.drawMore(below);
    this.bottom = below + more.height;
    const height = this.bottom + 20;
    set(this.svg, { width: total, height, viewBox: `0 0 ${total} ${height}` });
    const yOf = (row) => top + pitch * row + (narrow ? 23 : 5);
    // Lines through all rows leave out the names above the bars.
    this.clear = narrow ? [...this.lanes.map((_, row) => [yOf(row) - 3, yOf(row) + BAR + ghost]),
      [below, this.bottom]] : [[top - 6, this.bottom]];
    this.narrow = narrow;
    const names = [];
    const rows = this.lanes.map((lane, row) => {
      const y = yOf(row);
      const label = narrow ? { x: this.left, y: y - 13 } : { x: 0, y: y + BAR / 2 };
      names.push(make("s:text", { ...label, class: "name" }, lane.title));
      const time = make("s:text", { x: total, y: y + BAR / 2, class: "time" }, formatTime(lane.time_s));
      return make("s:g", { class: "track" }, ...this.bars(lane, y), time);
    });
    this.drawHead(top);
    const over = this.lanes.flatMap((lane, row) => [
      ...this.phaseNames(lane, yOf(row)), this.flag(lane, yOf(row)), ...this.marks(lane, yOf(row)),
      ...drawGhost(this, lane, yOf(row) + BAR + 3)]);
    this.svg.replaceChildren(hatch("hatch"), this.axis(), ...drawBands(this, top), ...rows, ...more.nodes,
      this.bound(top), ...over, ...drawChanges(this, top), ...names);
  }

  /** The playhead lies over the axis, which then need not be painted again when it moves. */
  drawHead(top) {
    set(this.head, { height: this.bottom });
    this.head.replaceChildren(make("s:path", { class: "line", d: this.down(5) }),
      make("s:path", { d: `M 0 ${top - 12} h 10 l -5 7 z` }));
  }

  /** A line from top to bottom. */
  down(x) {
    return this.clear.map(([from, to]) => `M ${x} ${from} V ${to}`).join(" ");
  }

  /** What a richer view shows below the rows, from `y` on. */
  drawMore() {
    return { nodes: [], height: 0 };
  }

  bars(lane, y) {
    return lane.spans.filter((step) => step.end > step.start).map((step) => {
      const [from, to] = [this.x(step.start), this.x(step.end)];
      const gap = to - from > 4 ? 1 : 0;
      const part = barOf(lane, step.op === ADD ? "add" : "copy", y);
      return make("s:rect", { x: from, width: Math.max(0.5, to - from - gap), ...part,
        class: step.op === ADD ? "add" : "copy" });
    });
  }

  /** Names of phases, where there is room: about 12 px for a Chinese character, 6.4 for others. */
  phaseNames(lane, y) {
    return lane.phases.map(({ label, op, first, last }) => {
      const [from, to] = [this.x(phaseStart(lane, { first, last })), this.x(lane.spans[last].end)];
      const width = [...label].reduce((sum, c) => sum + (c > "\u2e80" ? 12 : 6.4), 16);
      if (width > to - from) return "";
      const middle = (from + to) / 2;
      const part = barOf(lane, op, y);
      return make("s:g", { class: part.height < BAR ? `phase half ${op}` : `phase ${op}` },
        make("s:rect", { x: middle - width / 2, width, ...part }),
        make("s:text", { x: middle, y: part.y + part.height / 2 }, label));
    });
  }

  flag(lane, y) {
    const x = this.x(lane.time_s);
    return make("s:path", { class: "flag", d: `M ${x} ${y + BAR + 2} V ${y - 3} l 9 4 l -9 4` });
  }

  /** Measured times: a full diamond for a replay, a hollow one for the vendor's own run. */
  marks(lane, y) {
    return lane.marks.map(({ source, time_s, low_s, high_s, label }) => {
      const [x, middle] = [this.x(time_s), y + BAR * (source === "vendor" ? 0.8 : 0.3)];
      return make("s:g", { class: `mark ${source}`, "data-testid": `mark-${lane.name}-${source}` },
        make("s:line", { x1: this.x(low_s), x2: this.x(high_s), y1: middle, y2: middle }),
        make("s:path", { d: `M ${x - 5} ${middle} l 5 -5 l 5 5 l -5 5 z` }), tip(label));
    });
  }

  axis() {
    const format = steadyTicks(this.end);
    const ticks = axisTicks(this.end, Math.max(2, Math.floor(this.width / 90)));
    return make("s:g", { class: "axis" },
      make("s:line", { x1: this.left, x2: this.x(this.end), y1: this.bottom, y2: this.bottom }),
      ...ticks.flatMap((time) => [
        make("s:line", { x1: this.x(time), x2: this.x(time), y1: this.bottom, y2: this.bottom + 4 }),
        make("s:text", { x: this.x(time), y: this.bottom + 14 }, format(time))]));
  }

  bound(top) {
    const bound = this.lanes[0].lower_bound_s;
    const [x, words] = [this.x(bound), say(this.text, "bound", { time: formatTime(bound) })];
    const before = x > this.left + this.width * 0.6;
    return make("s:g", { class: "bound" },
      make("s:path", { d: (this.narrow ? "" : `M ${x} ${top - 24} V ${top - 6} `) + this.down(x) }),
      make("s:text", { x: x + (before ? -6 : 6), y: top - 24, class: before ? "before" : "" }, words));
  }

  update(time) {
    this.head.style.transform = `translateX(${(this.x(time) - 5).toFixed(2)}px)`;
  }
}

/** Axis labels in one unit, without digits that say nothing. */
function steadyTicks(end) {
  const [name, factor] = unitFor(TIME_UNITS, end);
  return (time) => (time ? `${Number((time / factor).toPrecision(3))} ${name}` : "0");
}

