// The player: lanes of traces on one clock, drawn in the browser. No dependency, no build step.
//
// Part 1 is pure: what is true of a lane at time t. Part 2 draws that. Part 3 is the clock and its
// controls. Part 4 is the host: the default export is a Streamlit component (components v2).
// What a lane holds is written in player.py; all times are simulated seconds, sizes are bytes.

// ---------------------------------------------------------------- 1. core: lane and time -> state

const ADD = 1;
const MANY = 8; // GPUs in a lane from which on things are drawn smaller
const FULL = 0.999; // a port is full from here on: rates are sums of floats

/** A lane with its columns turned into what the functions below look up. */
export function prepareLane(lane) {
  const { transfers: t, pieces } = lane;
  const count = t.step.length;
  const whole = (start, end) => t.step.map((_, i) => [[start[i], end[i], t.nbytes[i]]]);
  const send = whole(t.send_start_s, t.send_end_s);
  const receive = whole(t.receive_start_s, t.receive_end_s);
  const split = new Set();
  for (let row = 0; row < pieces.transfer.length; row++) {
    const side = pieces.sending[row] ? send : receive;
    const i = pieces.transfer[row];
    const key = `${i},${pieces.sending[row]}`;
    if (!split.has(key)) side[i] = [];
    split.add(key);
    side[i].push([pieces.start_s[row], pieces.end_s[row], pieces.nbytes[row]]);
  }
  const steps = Array.from({ length: lane.steps }, () => ({ start: Infinity, end: -Infinity }));
  for (let i = 0; i < count; i++) {
    const step = steps[t.step[i]];
    step.start = Math.min(step.start, t.send_start_s[i]);
    step.end = Math.max(step.end, t.receive_end_s[i]);
    step.op = t.op[i];
  }
  return { ...lane, count, send, receive, spans: steps };
}

/** Bytes moved by `time` through pieces of constant rate; a piece without length is a jump. */
export function movedAt(pieces, time) {
  let moved = 0;
  for (const [start, end, nbytes] of pieces) {
    const share = end > start ? (time - start) / (end - start) : Number(time >= start);
    moved += nbytes * Math.min(1, Math.max(0, share));
  }
  return moved;
}

function rateAt(pieces, time) {
  for (const [start, end, nbytes] of pieces) {
    if (start <= time && time < end) return nbytes / (end - start);
  }
  return 0;
}

/** Everything the picture shows of a lane at `time`. */
export function stateAt(lane, time) {
  const { transfers: t, n } = lane;
  const zeros = () => new Array(n).fill(0);
  const state = { sent: zeros(), received: zeros(), sending: zeros(), receiving: zeros() };
  state.active = [];
  for (let i = 0; i < lane.count; i++) {
    state.sent[t.src[i]] += movedAt(lane.send[i], time);
    state.received[t.dst[i]] += movedAt(lane.receive[i], time);
    const [start, arrival] = [t.send_start_s[i], t.receive_end_s[i]];
    if (!(start <= time && time < arrival)) continue;
    const rate = rateAt(lane.send[i], time);
    state.sending[t.src[i]] += rate / lane.send_rate[t.src[i]];
    state.receiving[t.dst[i]] += rateAt(lane.receive[i], time) / lane.receive_rate[t.dst[i]];
    const load = rate / Math.min(lane.send_rate[t.src[i]], lane.receive_rate[t.dst[i]]);
    state.active.push({ i, load, progress: (time - start) / (arrival - start) });
  }
  const started = lane.spans.filter((step) => step.start <= time).length;
  const running = state.active.map(({ i }) => t.step[i]);
  state.step = running.length ? Math.min(...running) : started - 1;
  state.finished = time >= lane.time_s;
  state.inUse = [...state.sending, ...state.receiving].reduce((a, b) => a + b, 0) / (2 * n);
  return state;
}

/** The moments at which something starts or arrives in any lane, in order, each once. */
export function eventTimes(lanes) {
  const all = lanes.flatMap(({ transfers: t }) => [...t.send_start_s, ...t.receive_end_s]);
  const times = [0, ...all].sort((a, b) => a - b);
  const nearby = times[times.length - 1] * 1e-9;
  return times.filter((time, i) => i === 0 || time - times[i - 1] > nearby);
}

/** `GPUs 1–3`, or `GPUs 1, 4, 6` when they are not consecutive. */
export function listRanks(ranks, text) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const run = sorted.length > 2 && sorted[sorted.length - 1] - sorted[0] === sorted.length - 1;
  const list = run ? `${sorted[0]}–${sorted[sorted.length - 1]}` : sorted.join(", ");
  return say(text, "gpus", { list });
}

/** One sentence for what happens in the lane now; it is read off the transfers under way. */
export function captionAt(lane, state, text) {
  if (state.finished) return say(text, "done", { time: formatTime(lane.time_s) });
  const step = say(text, "step", { step: state.step + 1, steps: lane.steps });
  return step + say(text, "colon") + whatHappens(lane, state, text);
}

function whatHappens(lane, state, text) {
  const { transfers: t, n } = lane;
  const moving = state.active.filter(({ load }) => load > 0);
  if (!moving.length) return say(text, "in_flight");
  const { i, load } = moving[0];
  const word = t.op[i] === ADD ? "add" : "copy";
  const what = lane.chunks > 1 ? say(text, "chunk", { chunk: t.chunk[i] }) : say(text, "buffer");
  const values = { src: t.src[i], dst: t.dst[i], what, have: t.contributions[i], n };
  values.share = percent(text, load);
  const sources = new Set(moving.map((m) => t.src[m.i]));
  const targets = new Set(moving.map((m) => t.dst[m.i]));
  if (moving.length === 1) {
    const idle = n > 2 ? say(text, n === 3 ? "idle_one" : "idle", { idle: n - 2 }) : "";
    return say(text, `single_${word}`, values) + idle;
  }
  if (targets.size === 1) {
    const full = state.receiving[t.dst[i]] >= FULL ? say(text, "port_full_in", values) : "";
    return say(text, "gather", { ...values, srcs: listRanks(sources, text) }) + full;
  }
  if (sources.size === 1) {
    const full = state.sending[t.src[i]] >= FULL ? say(text, "port_full_out", values) : "";
    return say(text, "scatter", { ...values, dsts: listRanks(targets, text) }) + full;
  }
  return say(text, `each_${word}`, values);
}

/** A phrase of the catalogue with its {placeholders} filled in, spaced as views/text.py does. */
export function say(text, key, values = {}) {
  const filled = text[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  return filled.replace(/([\u4e00-\u9fff])(?=[A-Za-z0-9])|([A-Za-z0-9])(?=[\u4e00-\u9fff])/g, "$1$2 ");
}

const TIME_UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const SIZE_UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];

const unitFor = (units, value) => units.find(([, f]) => value >= f * 0.99995) ?? units.at(-1);

/** One unit and number of digits for all values up to `largest`: nothing jumps while they move. */
export function steadyFormat(units, largest, significant) {
  const [unit, factor] = unitFor(units, largest);
  const whole = Math.max(1, Math.floor(Math.log10(largest / factor || 1)) + 1);
  const digits = unit === "B" ? 0 : Math.max(2, significant - whole);
  return { unit, number: (value) => (value / factor).toFixed(digits) };
}

/** Four digits in the unit that reads best, like units.format_time in Python. */
export function formatTime(seconds) {
  if (seconds === 0) return "0 s";
  const [name, factor] = unitFor(TIME_UNITS, seconds);
  return `${Number((seconds / factor).toPrecision(4))} ${name}`;
}

const percent = (text, share) => say(text, "percent", { value: Math.round(share * 100 + 1e-6) });

/** Round steps of 1, 2 or 5 for an axis from 0 to `end`, about `count` of them. */
export function axisTicks(end, count) {
  const rough = end / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

/** Node centres in a 320 × 248 picture: a circle, or spokes around a hub with a gap below it. */
export function layout(n, hub) {
  const around = (degrees) => {
    const angle = (degrees * Math.PI) / 180;
    return { x: Math.cos(angle), y: Math.sin(angle) };
  };
  const spokes = n - 1;
  const step = spokes > 1 ? Math.min(360 / spokes, 270 / (spokes - 1), 120) : 0;
  const places = Array.from({ length: n }, (_, rank) => {
    if (hub === null) return around(-90 + (360 * rank) / n);
    if (rank === hub) return { x: 0, y: 0 };
    return around(-90 + ((rank < hub ? rank : rank - 1) - (spokes - 1) / 2) * step);
  });
  const ys = places.map(({ y }) => y);
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const radius = Math.min(120, 202 / (bottom - top)); // a star with few spokes is not centred
  return places.map(({ x, y }) => ({
    x: 160 + radius * x, y: 124 + radius * (y - (top + bottom) / 2),
  }));
}

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
  constructor(lane, text, scale) {
    Object.assign(this, { lane, text, scale });
    this.status = make("span", { class: "status" });
    this.caption = make("p", { class: "caption", "data-testid": `caption-${lane.name}` });
    this.useBar = make("i", {});
    this.useNumber = make("b", {});
    const use = make("div", { class: "use" }, make("span", {}, say(text, "in_use")),
      make("div", { class: "bar" }, this.useBar), this.useNumber);
    this.node = make("section", { class: "lane", "aria-label": lane.title, "data-lane": lane.name },
      make("header", {}, make("h3", {}, lane.title), this.status), this.caption,
      make("div", { class: "body" },
        make("div", { class: "graph" }, this.drawGraph(), use), this.drawCounters()));
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
    const { lane, text } = this;
    this.node.classList.toggle("finished", state.finished);
    write(this.status, state.finished ? `⚑ ${formatTime(lane.time_s)}` : "");
    this.updateGraph(state);
    this.useBar.style.width = `${100 * state.inUse}%`;
    write(this.useNumber, percent(text, state.inUse));
    for (const counter of this.counters) {
      const { which, rank, fill, number } = counter;
      const bytes = state[which][rank];
      if (bytes === counter.shown) continue; // most stand still, and a write costs a layout
      counter.shown = bytes;
      fill.style.width = `${(100 * bytes) / this.scale.largest || 0}%`;
      write(number, this.scale.number(bytes));
      number.dataset.value = bytes;
    }
    write(this.caption, captionAt(lane, state, text));
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

  x(time) {
    return this.left + (time / this.end) * this.width;
  }

  /** Draws all that does not move, for a total width in pixels. */
  resize(total) {
    const narrow = total < 560;
    const right = 74;
    this.left = narrow ? 8 : 118;
    this.width = Math.max(40, total - this.left - right);
    const [top, pitch] = [20, narrow ? 46 : 32];
    this.bottom = top + pitch * this.lanes.length;
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
    this.node.replaceChildren(hatch("hatch"), this.axis(), ...rows, this.bound(top), ...over, this.head,
      ...names);
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

// ----------------------------------------------------------------- 3. the clock and its controls

const ICONS = {
  restart: "M5 4h2v12H5z M16 4v12l-8-6z",
  back: "M13 4v12l-8-6z M14 4h1.6v12H14z",
  play: "M6 3.5v13l10.5-6.5z",
  pause: "M5.5 4h3v12h-3z M11.5 4h3v12h-3z",
  forward: "M7 4v12l8-6z M4.4 4H6v12H4.4z",
  end: "M13 4h2v12h-2z M4 4v12l8-6z",
};
const BAR = 22; // height of a bar on the time axis, in pixels
const WALL_CLOCK_S = 8; // the slowest lane finishes in this time at speed 1

class Player {
  constructor(root) {
    this.root = root;
    this.playing = false;
    this.touched = false;
    this.clock = 0;
    this.speed = 1;
    this.motion = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(root);
    root.onkeydown = (event) => this.key(event);
    root.onpointerover = (event) => this.light(event.target.closest("[data-rank]")?.dataset.rank);
    root.onpointerleave = () => this.light();
  }

  /** The GPU under the pointer is marked wherever it is shown. */
  light(rank) {
    for (const node of this.root.querySelectorAll("[data-rank]")) {
      node.classList.toggle("lit", node.dataset.rank === rank);
    }
  }

  /** New data, or the same in another language: redraw, and keep the place in time. */
  update(data) {
    const words = JSON.stringify(data);
    if (words === this.words) {
      this.scheme(); // only the theme is new
      return;
    }
    const place = this.touched ? this.clock / this.end : null;
    this.words = words;
    this.text = data.text;
    document.documentElement.lang = data.lang;
    set(this.root, { lang: data.lang, role: "group", "aria-label": say(this.text, "name") });
    this.lanes = data.lanes.map(prepareLane);
    this.total = Math.max(...this.lanes.map((lane) => lane.time_s));
    const marks = this.lanes.flatMap((lane) => lane.marks.map((mark) => mark.high_s));
    this.end = Math.max(this.total, ...marks) * 1.01 || 1;
    this.events = eventTimes(this.lanes);
    const { unit, number } = steadyFormat(TIME_UNITS, this.total, 5);
    this.formatTime = (time) => `${number(time)} ${unit}`;
    this.draw();
    this.seek(place === null ? data.poster_s : place * this.end);
  }

  /** Dark or light, told by the ground's brightness, for colours that the theme does not name. */
  scheme() {
    const ground = getComputedStyle(this.root).backgroundColor.match(/[\d.]+/g)?.map(Number);
    const dark = ground && 0.3 * ground[0] + 0.59 * ground[1] + 0.11 * ground[2] < 128;
    this.root.dataset.scheme = dark ? "dark" : "light";
  }

  draw() {
    const { lanes, text } = this;
    const largest = Math.max(1, ...lanes.flatMap((l) => [...l.sent_bytes, ...l.received_bytes]));
    const scale = { largest, ...steadyFormat(SIZE_UNITS, largest, 4) };
    this.views = lanes.map((lane) => new LaneView(lane, text, scale));
    this.timeline = new TimelineView(lanes, text, this.end, (time) => this.jump(time));
    this.root.replaceChildren(
      make("div", { class: "lanes" }, ...this.views.map((view) => view.node)),
      make("div", { class: "stage" }, this.drawControls(), this.timeline.node, this.drawScrubber()),
      this.drawLegend());
    this.showPlaying();
    this.scheme();
    this.resize();
  }

  drawScrubber() {
    this.scrubber = make("input", { type: "range", min: 0, max: 1, step: "any", class: "scrub",
      "aria-label": say(this.text, "scrub"), "data-testid": "scrub" });
    this.scrubber.oninput = () => this.jump(Number(this.scrubber.value) * this.end);
    return this.scrubber;
  }

  drawControls() {
    const { text } = this;
    const button = (name, act) => {
      const node = make("button", { type: "button", "aria-label": say(text, name),
        title: say(text, name), "data-testid": name },
      make("s:svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, make("s:path", { d: ICONS[name] })));
      node.onclick = act;
      return node;
    };
    this.playButton = button("play", () => this.toggle());
    this.clockText = make("output", { class: "clock", "data-testid": "time" });
    this.speedText = make("output", { class: "speed" });
    const speed = make("input", { type: "range", min: -4, max: 4, step: 1, class: "rate",
      value: Math.log2(this.speed), "aria-label": say(text, "speed"), "data-testid": "speed" });
    speed.oninput = () => {
      this.speed = 2 ** Number(speed.value);
      this.showSpeed();
    };
    this.showSpeed();
    return make("div", { class: "controls" },
      make("div", { class: "buttons" }, button("restart", () => this.jump(0)),
        button("back", () => this.step(-1)), this.playButton,
        button("forward", () => this.step(1)), button("end", () => this.jump(this.total))),
      this.clockText,
      make("label", { class: "speed-box" }, make("span", {}, say(text, "speed")), speed, this.speedText),
      make("span", { class: "keys" }, say(text, "keys")));
  }

  drawLegend() {
    const { text, lanes } = this;
    const sample = (key, ...shapes) => make("span", {},
      make("s:svg", { viewBox: "0 0 22 14", class: "timeline", "aria-hidden": "true" }, ...shapes),
      say(text, key));
    const bar = (kind) => make("s:rect", { x: 0, y: 1, width: 22, height: 12, class: kind });
    const diamond = (kind) => make("s:g", { class: `mark ${kind}` },
      make("s:path", { d: "M 5 7 l 6 -6 l 6 6 l -6 6 z" }));
    const has = (source) => lanes.some((lane) => lane.marks.some((mark) => mark.source === source));
    return make("div", { class: "legend" },
      sample("legend_add", bar("add")), sample("legend_copy", bar("copy")),
      sample("legend_hot", make("s:path", { d: "M 13 12 A 5 5 0 0 1 13 2", class: "gauge hot" })),
      sample("legend_ports", make("s:path", { d: "M 11 13 A 6 6 0 0 1 11 1", class: "gauge" }),
        make("s:path", { d: "M 11 13 A 6 6 0 0 0 11 1", class: "gauge-track" })),
      ...(has("replayed") ? [sample("legend_replayed", diamond("replayed"))] : []),
      ...(has("vendor") ? [sample("legend_vendor", diamond("vendor"))] : []));
  }

  showSpeed() {
    const words = this.speed < 1 ? `1/${1 / this.speed}×` : `${this.speed}×`;
    write(this.speedText, words);
  }

  resize() {
    if (!this.timeline) return;
    this.timeline.resize(this.timeline.node.parentElement.clientWidth);
    this.scrubber.style.marginLeft = `${this.timeline.left - 8}px`; // half of the thumb
    this.scrubber.style.width = `${this.timeline.width + 16}px`;
    this.show();
  }

  key(event) {
    const onButton = event.target.tagName === "BUTTON";
    if (event.target.dataset.testid === "speed" || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      " ": onButton ? null : () => this.toggle(),
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.jump(0),
      End: () => this.jump(this.total),
    };
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  toggle() {
    if (this.playing) {
      this.pause();
      return;
    }
    if (this.clock >= this.total) this.seek(0);
    this.touched = true;
    this.playing = true;
    this.before = null;
    this.frame = requestAnimationFrame((now) => this.tick(now));
    this.showPlaying();
  }

  pause() {
    this.playing = false;
    cancelAnimationFrame(this.frame);
    this.showPlaying();
    this.show();
  }

  showPlaying() {
    const name = this.playing ? "pause" : "play";
    set(this.playButton, { "aria-label": say(this.text, name), title: say(this.text, name),
      "data-playing": this.playing });
    set(this.playButton.querySelector("path"), { d: ICONS[name] });
    // A screen reader hears the captions at rest, not sixty times a second.
    for (const view of this.views) set(view.caption, { "aria-live": this.playing ? "off" : "polite" });
  }

  tick(now) {
    const passed_s = this.before === null ? 0 : Math.min(0.25, (now - this.before) / 1000);
    this.before = now;
    const rate = (this.total / WALL_CLOCK_S) * this.speed;
    this.seek(Math.min(this.total, this.clock + passed_s * rate));
    if (this.clock >= this.total) this.pause();
    else this.frame = requestAnimationFrame((next) => this.tick(next));
  }

  /** The user moved the time: that pauses, so that what is shown can be read. */
  jump(time) {
    this.touched = true;
    if (this.playing) this.pause();
    this.seek(time);
  }

  step(direction) {
    const nearby = this.total * 1e-9;
    const times = direction > 0 ? this.events.filter((t) => t > this.clock + nearby).slice(0, 1)
      : this.events.filter((t) => t < this.clock - nearby).slice(-1);
    if (times.length) this.jump(times[0]);
  }

  seek(time) {
    this.clock = Math.min(Math.max(time, 0), this.end);
    this.show();
  }

  /** With reduced motion a running clock shows only the moments at which something happens. */
  shownTime() {
    if (!(this.playing && this.motion?.matches)) return this.clock;
    return this.events.filter((t) => t <= this.clock).at(-1) ?? 0;
  }

  show() {
    const time = this.shownTime();
    this.lanes.forEach((lane, row) => this.views[row].update(stateAt(lane, time)));
    this.timeline.update(time);
    this.scrubber.value = this.clock / this.end;
    set(this.scrubber, { "aria-valuetext": this.formatTime(time) });
    write(this.clockText, `t = ${this.formatTime(time)}`);
    this.clockText.dataset.value = time;
  }

  destroy() {
    cancelAnimationFrame(this.frame);
    this.resized.disconnect();
  }
}

// --------------------------------------------------------------------------------- 4. the host

const PLAYERS = new WeakMap(); // Streamlit calls the export again for new data and new themes

export default function mount({ data, parentElement }) {
  let player = PLAYERS.get(parentElement);
  if (!player) {
    player = new Player(parentElement.querySelector(".player"));
    PLAYERS.set(parentElement, player);
  }
  player.update(data);
  return () => {
    player.destroy();
    PLAYERS.delete(parentElement);
  };
}
