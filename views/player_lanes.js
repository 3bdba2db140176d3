// ---------------------------------------------------------------------- 2. drawing: state -> DOM

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `s:` before the tag makes it SVG. */
function make(tag, attributes = {}, ...children) {
  const node = tag.startsWith("s:")
    ? document.createElementNS(SVG, tag.slice(2))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

const tip = (words) => make("s:title", {}, words);

/** The hatch of the copying phase; colour alone never tells two things apart. */
function hatch(id) {
  return make("s:defs", {},
    make("s:pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse",
      patternTransform: "rotate(45)" },
    make("s:rect", { width: 6, height: 6, class: "hatch-ground" }),
    make("s:rect", { width: 2, height: 6, class: "hatch-line" })));
}

/** One strategy: title, network graph, network in use, bytes of every GPU, caption. */
class LaneView {
  constructor(lane, text, scale, chosen = null) {
    Object.assign(this, { lane, text, scale, chosen });
    this.status = make("span", { class: "status" });
    this.caption = make("p", { class: "caption", "data-testid": `caption-${lane.name}` });
    this.useBar = make("i", {});
    this.useNumber = make("b", {});
    const use = make("div", { class: "use" }, make("span", {}, say(text, "in_use")),
      make("div", { class: "bar" }, this.useBar), this.useNumber);
    this.node = make("section", { class: "lane", "aria-label": lane.title, "data-lane": lane.name },
      make("header", {}, make("h2", {}, lane.title), this.status), this.caption,
      make("div", { class: "body" },
        make("div", { class: "graph" }, this.drawGraph(), use), ...this.drawMore(), this.drawCounters()));
  }

  /** What a richer view shows beside the graph. */
  drawMore() {
    return [];
  }

  drawGraph() {
    const { lane, text } = this;
    this.places = layout(lane.n, lane.hub);
    this.radius = lane.n > MANY ? 9 : 15;
    this.links = new Map();
    const [tracks, flows, nodes] = ["tracks", "flows", "nodes"].map((c) => make("s:g", { class: c }));
    const t = lane.transfers;
    for (let i = 0; i < lane.count; i++) {
      const key = `${t.src[i]}>${t.dst[i]}`;
      if (this.links.has(key)) continue;
      const link = this.linkBetween(t.src[i], t.dst[i]);
      this.links.set(key, link);
      tracks.append(make("s:line", link.ends));
      link.flow = make("s:line", { ...link.ends, class: "flow" });
      flows.append(link.flow);
    }
    this.tokens = make("s:g", { class: "tokens" });
    this.gauges = this.places.map((place, rank) => this.drawNode(nodes, place, rank));
    const middle = this.places[lane.hub ?? 0];
    this.hubLabel = make("s:text", { class: "hub-label", x: middle.x,
      y: middle.y + this.hubRadius() + 24 });
    return make("s:svg", { viewBox: "0 0 320 248", role: "img",
      "aria-label": say(text, "graph", { title: lane.title, n: lane.n }) },
    tracks, flows, this.tokens, nodes, this.hubLabel);
  }

  hubRadius() {
    return this.lane.hub === null ? this.radius : Math.max(this.radius, 17);
  }

  radiusOf(rank) {
    return rank === this.lane.hub ? this.hubRadius() : this.radius;
  }

  /** The visible part of a link: from rim to rim, beside its twin where both directions run. */
  linkBetween(src, dst) {
    const [a, b] = [this.places[src], this.places[dst]];
    const length = Math.hypot(b.x - a.x, b.y - a.y);
    const [ux, uy] = [(b.x - a.x) / length, (b.y - a.y) / length];
    const aside = this.lane.hub === null && this.lane.n === 2 ? 10 : 0;
    const [ox, oy] = [-uy * aside, ux * aside];
    const [from, to] = [this.radiusOf(src) + 7, length - this.radiusOf(dst) - 7];
    const point = (along) => [a.x + ux * along + ox, a.y + uy * along + oy];
    const [[x1, y1], [x2, y2]] = [point(from), point(to)];
    return { ends: { x1, y1, x2, y2 }, at: (share) => point(from + (to - from) * share) };
  }

  /** A GPU with a half ring for each direction of its port: left receives, right sends. */
  drawNode(parent, { x, y }, rank) {
    const r = this.radiusOf(rank);
    const gauge = r + 4;
    const half = (sweep, kind) => {
      const d = `M ${x} ${y + gauge} A ${gauge} ${gauge} 0 0 ${sweep} ${x} ${y - gauge}`;
      const fill = make("s:path", { d, class: `gauge ${kind}`, pathLength: 1 });
      parent.append(make("s:path", { d, class: "gauge-track" }), fill);
      return fill;
    };
    const title = tip("");
    const [receiving, sending] = [half(1, "in"), half(0, "out")];
    parent.append(make("s:g", { class: rank === this.lane.hub ? "gpu hub" : "gpu", "data-rank": rank },
      make("s:circle", { cx: x, cy: y, r }),
      make("s:text", { x, y, class: this.lane.n > MANY ? "small" : "" }, String(rank)), title));
    return { receiving, sending, title };
  }

  drawCounters() {
    const { lane, text } = this;
    const { unit } = this.scale;
    const head = make("div", { class: "row head" }, make("span", {}, say(text, "gpu")),
      make("span", {}, say(text, "sent", { unit })), make("span", {}, say(text, "received", { unit })));
    this.counters = [];
    const rows = Array.from({ length: lane.n }, (_, rank) => {
      const cells = ["sent", "received"].map((which) => {
        const total = lane[`${which}_bytes`][rank];
        const fill = make("i", {});
        const ghost = make("s", { style: `width:${(100 * total) / this.scale.largest || 0}%` });
        const number = make("span", { class: "number", "data-testid": `${which}-${lane.name}-${rank}` });
        this.counters.push({ which, rank, fill, number });
        return make("div", { class: "cell" }, make("div", { class: "bar" }, ghost, fill), number);
      });
      const bottleneck = rank === lane.bottleneck ? " bottleneck" : "";
      return make("div", { class: `row${bottleneck}`, "data-rank": rank },
        make("span", { class: "rank" }, String(rank)), ...cells);
    });
    const many = lane.n > MANY ? " many" : "";
    return make("div", { class: `counters${many}` }, head, ...rows);
  }

  update(state) {
    const { lane } = this;
    this.node.classList.toggle("finished", state.finished);
    write(this.status, state.finished ? `⚑ ${formatTime(lane.time_s)}` : "");
    this.updateGraph(state);
    this.useBar.style.width = `${100 * state.inUse}%`;
    write(this.useNumber, percent(this.text, state.inUse));
    for (const counter of this.counters) {
      const { which, rank, fill, number } = counter;
      const bytes = state[which][rank];
      if (bytes === counter.shown) continue; // most stand still, and a write costs a layout
      counter.shown = bytes;
      fill.style.width = `${(100 * bytes) / this.scale.largest || 0}%`;
      write(number, this.scale.number(bytes));
      number.dataset.value = bytes;
    }
    write(this.caption, captionAt(lane, state, this.text, this.followed));
  }

  updateGraph(state) {
    const { lane, text } = this;
    for (const link of this.links.values()) link.load = 0;
    const t = lane.transfers;
    this.tokens.replaceChildren(...state.active.map(({ i, load, progress }) => {
      const link = this.links.get(`${t.src[i]}>${t.dst[i]}`);
      Object.assign(link, { load: link.load + load, op: t.op[i] });
      return this.token(link.at(progress), t.op[i], t.chunk[i]);
    }));
    for (const { flow, load, op } of this.links.values()) {
      set(flow, { class: `flow ${op === ADD ? "add" : "copy"}`, "stroke-width": 7 * load,
        visibility: load > 0 ? "visible" : "hidden" });
    }
    this.gauges.forEach(({ receiving, sending, title }, rank) => {
      const [inward, outward] = [state.receiving[rank], state.sending[rank]];
      const hot = (load) => (rank === lane.bottleneck && load >= FULL ? " hot" : "");
      set(receiving, { class: `gauge in${hot(inward)}`, "stroke-dasharray": `${inward} 2` });
      set(sending, { class: `gauge out${hot(outward)}`, "stroke-dasharray": `${outward} 2` });
      write(title, say(text, "port", { rank, receiving: percent(text, inward),
        sending: percent(text, outward) }));
    });
    const hub = lane.bottleneck;
    const words = hub === null ? "" : [["in", state.receiving[hub]], ["out", state.sending[hub]]]
      .filter(([, load]) => load > 0).map(([way, load]) => `${say(text, way)} ${percent(text, load)}`)
      .join(" · ");
    write(this.hubLabel, words);
  }

  /** What travels: a round partial sum to be added, or a square result to be kept. */
  token([x, y], op, chunk) {
    const { lane } = this;
    const size = (lane.n > MANY ? 5 : 8) + (lane.chunks > 1 ? 0 : 1); // a whole buffer is larger
    const shape = op === ADD ? make("s:circle", { cx: x, cy: y, r: size })
      : make("s:rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: 2 });
    const number = lane.chunks > 1 && lane.n <= MANY ? [make("s:text", { x, y }, String(chunk))] : [];
    return make("s:g", { class: op === ADD ? "token add" : "token copy" }, shape, ...number);
  }
}

/** The common time axis: one row per strategy, phases, flags, bound, measured marks, playhead. */
class TimelineView {
  constructor(lanes, text, end, seek) {
    Object.assign(this, { lanes, text, end, seek });
    this.node = make("s:svg", { class: "timeline", role: "img", "aria-label": say(text, "timeline") });
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

  x(time) {
    return this.left + (time / this.end) * this.width;
  }

  /** Draws all that does not move, for a total width in pixels. */
  resize(total) {
    const narrow = total < 560;
    const right = 74;
    this.left = narrow ? this.narrowLeft() : 118;
    this.width = Math.max(40, total - this.left - right);
    const [top, pitch] = [20, narrow ? 46 : 32];
    const below = top + pitch * this.lanes.length;
    const more = this.drawMore(below);
    this.bottom = below + more.height;
    const height = this.bottom + 20;
    set(this.node, { width: total, height, viewBox: `0 0 ${total} ${height}` });
    const yOf = (row) => top + pitch * row + (narrow ? 18 : 5);
    const names = [];
    const rows = this.lanes.map((lane, row) => {
      const y = yOf(row);
      const label = narrow ? { x: this.left, y: y - 8 } : { x: 0, y: y + BAR / 2 };
      names.push(make("s:text", { ...label, class: "name" }, lane.title));
      const time = make("s:text", { x: total, y: y + BAR / 2, class: "time" }, formatTime(lane.time_s));
      return make("s:g", { class: "track" }, ...this.bars(lane, y), time);
    });
    this.head = make("s:g", { class: "playhead" },
      make("s:line", { x1: 0, x2: 0, y1: top - 6, y2: this.bottom }),
      make("s:path", { d: `M -5 ${top - 12} h 10 l -5 7 z` }));
    const over = this.lanes.flatMap((lane, row) => [
      ...this.phaseNames(lane, yOf(row)), this.flag(lane, yOf(row)), ...this.marks(lane, yOf(row))]);
    this.node.replaceChildren(hatch("hatch"), this.axis(), ...rows, ...more.nodes, this.bound(top), ...over,
      this.head, ...names);
  }

  /** What a richer view shows below the rows, from `y` on. */
  drawMore() {
    return { nodes: [], height: 0 };
  }

  bars(lane, y) {
    return lane.spans.filter((step) => step.end > step.start).map((step) => {
      const [from, to] = [this.x(step.start), this.x(step.end)];
      const gap = to - from > 4 ? 1 : 0;
      return make("s:rect", { x: from, y, width: Math.max(0.5, to - from - gap), height: BAR,
        class: step.op === ADD ? "add" : "copy" });
    });
  }

  /** Names of phases, where there is room: about 12 px for a Chinese character, 6.4 for others. */
  phaseNames(lane, y) {
    return lane.phases.map(({ label, op, first, last }) => {
      const [from, to] = [this.x(lane.spans[first].start), this.x(lane.spans[last].end)];
      const width = [...label].reduce((sum, c) => sum + (c > "\u2e80" ? 12 : 6.4), 16);
      if (width > to - from) return "";
      const middle = (from + to) / 2;
      return make("s:g", { class: `phase ${op}` },
        make("s:rect", { x: middle - width / 2, y, width, height: BAR }),
        make("s:text", { x: middle, y: y + BAR / 2 }, label));
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
      make("s:line", { x1: x, x2: x, y1: top - 4, y2: this.bottom }),
      make("s:text", { x: x + (before ? -6 : 6), y: top - 10, class: before ? "before" : "" }, words));
  }

  update(time) {
    set(this.head, { transform: `translate(${this.x(time)} 0)` });
  }
}

/** Axis labels in one unit, without digits that say nothing. */
function steadyTicks(end) {
  const [name, factor] = unitFor(TIME_UNITS, end);
  return (time) => (time ? `${Number((time / factor).toPrecision(3))} ${name}` : "0");
}

