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
