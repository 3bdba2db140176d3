// ------------------------------------------------------------------------- drawing: state -> DOM

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

const MOST_LABELS = 4; // of ports; more would hide the network

/** One strategy: title, phases, caption, network graph, network in use, bytes of every GPU. */
class LaneView {
  /** `jump(time)` moves the clock, `choose(rank)` the chosen GPU; `chosen` is a richer view's. */
  constructor(lane, text, scale, { jump, choose, chosen = null }) {
    Object.assign(this, { lane, text, scale, jump, choose, chosen });
    this.status = make("span", { class: "status" });
    this.caption = make("p", { class: "caption", "data-testid": `caption-${lane.name}` });
    this.useBar = make("i", {});
    this.useNumber = make("b", {});
    const use = make("div", { class: "use" }, make("span", {}, say(text, "in_use")),
      make("div", { class: "bar" }, this.useBar), this.useNumber);
    const Counters = lane.n > CROWD ? CounterProfile : CounterTable;
    this.counters = new Counters(lane, text, scale);
    this.node = make("section", { class: lane.n > CROWD ? "lane crowd" : lane.nodes ? "lane nodes" : "lane",
      "aria-label": lane.title, "data-lane": lane.name },
    make("header", {}, make("h2", {}, lane.title), this.status, this.drawPhases()), this.caption,
    make("div", { class: "body" },
      make("div", { class: "graph" }, this.drawGraph(), use), ...this.drawMore(), this.counters.node));
  }

  /** A button for each phase, to where it begins. */
  drawPhases() {
    return make("div", { class: "phases" }, ...this.lane.phases.map(({ label, op, first, last }) => {
      const node = make("button", { type: "button", class: op, "data-testid": `phase-${op}`,
        title: say(this.text, "to_phase", { phase: label }) }, label);
      node.onclick = () => this.jump(phaseStart(this.lane, { first, last }));
      return node;
    }));
  }

  /** What a richer view shows beside the graph. */
  drawMore() {
    return [];
  }

  /** Where several GPUs do the same, the caption tells of this one's part. */
  follow(rank) {
    this.followed = rank;
  }

  drawGraph() {
    const { lane, text } = this;
    this.places = lane.nodes ? lane.nodes.places.map(([x, y]) => ({ x, y })) : layout(lane.n, lane.hub);
    this.boxes = new NodeBoxes(lane.nodes?.boxes ?? [], text);
    this.labels = new HotLabels();
    this.sizes = sizes(lane.n, this.places);
    this.links = new Map();
    this.tokens = new Map();
    const [tracks, flows, nodes] = ["tracks", "flows", "nodes"].map((c) => make("s:g", { class: c }));
    const t = lane.transfers;
    for (let i = 0; i < lane.count; i++) {
      const key = `${t.src[i]}>${t.dst[i]}`;
      if (this.links.has(key)) continue;
      const link = this.linkBetween(t.src[i], t.dst[i]);
      this.links.set(key, link);
      tracks.append(make("s:line", { ...link.ends, "data-link": key }));
      link.flow = make("s:line", { ...link.ends, class: "flow" });
      flows.append(link.flow);
    }
    this.tokenLayer = make("s:g", { class: "tokens" });
    this.gauges = this.places.map((place, rank) => this.drawNode(nodes, place, rank));
    return make("s:svg", { viewBox: "0 0 320 248", role: "img", style: `--ring:${this.sizes.ring}px`,
      "aria-label": say(text, "graph", { title: lane.title, n: lane.n }) },
    this.boxes.ground, tracks, flows, this.tokenLayer, nodes, this.boxes.over, this.labels.node);
  }

  hubRadius() {
    return this.lane.hub === null ? this.sizes.radius : Math.max(this.sizes.radius, 17);
  }

  radiusOf(rank) {
    return rank === this.lane.hub ? this.hubRadius() : this.sizes.radius;
  }

  /** The visible part of a link: from rim to rim, beside its twin where both directions run; in a
   *  crowd beside the GPUs, which stand too close for anything between them to be seen. */
  linkBetween(src, dst) {
    const { n, hub } = this.lane;
    const [a, b] = [this.places[src], this.places[dst]];
    const length = Math.hypot(b.x - a.x, b.y - a.y);
    const [ux, uy] = [(b.x - a.x) / length, (b.y - a.y) / length];
    const rim = (rank) => this.radiusOf(rank) + Math.min(7, this.sizes.gap + this.sizes.ring / 2 + 1);
    const crowd = n > CROWD && hub === null && !this.lane.nodes;
    const aside = crowd ? rim(src) + this.sizes.token : hub === null && n === 2 ? 10 : 0;
    const [ox, oy] = [-uy * aside, ux * aside];
    const [from, to] = crowd ? [0, length] : [rim(src), length - rim(dst)];
    const point = (along) => [a.x + ux * along + ox, a.y + uy * along + oy];
    const [[x1, y1], [x2, y2]] = [point(from), point(to)];
    return { ends: { x1, y1, x2, y2 }, at: (share) => point(from + (to - from) * share) };
  }

  /** A GPU with a half ring for each direction of its port: left receives, right sends. */
  drawNode(parent, { x, y }, rank) {
    const r = this.radiusOf(rank);
    const gauge = r + this.sizes.gap;
    const half = (sweep, kind) => {
      const d = `M ${x} ${y + gauge} A ${gauge} ${gauge} 0 0 ${sweep} ${x} ${y - gauge}`;
      const fill = make("s:path", { d, class: `gauge ${kind}`, pathLength: 1 });
      parent.append(make("s:path", { d, class: "gauge-track" }), fill);
      return fill;
    };
    const title = tip("");
    const [receiving, sending] = [half(1, "in"), half(0, "out")];
    parent.append(make("s:g", { class: rank === this.lane.hub ? "gpu hub" : "gpu", "data-rank": rank },
      make("s:circle", { cx: x, cy: y, r }), this.drawNumber(x, y, rank), title));
    return { receiving, sending, title };
  }

  /** In the GPU; where that is too small beside it, and then of every eighth and of the lit one. */
  drawNumber(x, y, rank) {
    const { hub, n } = this.lane;
    const { radius, gap, ring } = this.sizes;
    if (radius > 6.5 || rank === hub) {
      const small = n > MANY && rank !== hub;
      return make("s:text", { x, y, class: small ? "small" : "" }, String(rank));
    }
    const centre = hub === null ? { x: 160, y: 124 } : this.places[hub];
    const away = Math.hypot(x - centre.x, y - centre.y) || 1;
    const along = (away + radius + gap + ring + 7) / away;
    return make("s:text", { x: centre.x + along * (x - centre.x), y: centre.y + along * (y - centre.y),
      class: rank % 8 ? "small seldom" : "small" }, String(rank));
  }

  update(state) {
    const { lane } = this;
    this.state = state;
    this.node.classList.toggle("finished", state.finished);
    write(this.status, state.finished ? `⚑ ${formatTime(lane.time_s)}` : "");
    this.updateLinks(state);
    this.updatePorts(state);
    this.useBar.style.transform = `scaleX(${state.inUse})`;
    write(this.useNumber, percent(this.text, state.inUse));
    this.counters.update(state);
    write(this.caption, captionAt(lane, state, this.text, this.followed));
  }

  updateLinks(state) {
    const t = this.lane.transfers;
    for (const link of this.links.values()) link.load = 0;
    const gone = new Map(this.tokens);
    for (const { i, load, progress } of state.active) {
      const link = this.links.get(`${t.src[i]}>${t.dst[i]}`);
      link.load += load;
      link.op = t.op[i];
      this.moveToken(i, link.at(progress));
      gone.delete(i);
    }
    for (const [i, node] of gone) {
      node.remove();
      this.tokens.delete(i);
    }
    for (const [key, link] of this.links) this.updateFlow(link, state, this.lane.net.pairOf.get(key));
  }

  /** A line in the link, as wide as its load; a link that holds others up is all in the accent. */
  updateFlow(link, { hot, capacity }, number) {
    const kind = hot.has(number) ? (capacity[number] === 0 ? "hot cut" : "hot") : link.op === ADD ? "add" : "copy";
    const load = hot.has(number) ? 1 : Math.min(1, link.load);
    if (load === link.shownLoad && kind === link.kind) return;
    Object.assign(link, { shownLoad: load, kind });
    set(link.flow, { class: `flow ${kind}`, "stroke-width": Math.min(hot.has(number) ? 9 : 7, 2 * this.sizes.token) * load,
      visibility: load > 0 ? "visible" : "hidden" });
  }

  /** What travels: a round partial sum to be added, or a square result to be kept. */
  moveToken(i, [x, y]) {
    if (!this.tokens.has(i)) {
      const node = this.drawToken(this.lane.transfers.op[i], this.lane.transfers.chunk[i]);
      this.tokens.set(i, node);
      this.tokenLayer.append(node);
    }
    this.tokens.get(i).setAttribute("transform", `translate(${x.toFixed(2)} ${y.toFixed(2)})`);
  }

  drawToken(op, chunk) {
    const { lane } = this;
    const size = this.sizes.token + (lane.chunks > 1 ? 0 : 1); // a whole buffer is larger
    const shape = op === ADD ? make("s:circle", { r: size })
      : make("s:rect", { x: -size, y: -size, width: 2 * size, height: 2 * size, rx: size / 4 });
    const number = lane.chunks > 1 && lane.n <= MANY ? [make("s:text", {}, String(chunk))] : [];
    return make("s:g", { class: op === ADD ? "token add" : "token copy" }, shape, ...number);
  }

  updatePorts(state) {
    const { lane, text } = this;
    const hot = hotPorts(lane, state);
    this.gauges.forEach((gauge, rank) => {
      const [inward, outward] = [state.receiving[rank], state.sending[rank]];
      const key = [inward, outward, hot[rank].in, hot[rank].out].join();
      if (gauge.shown === key) return;
      gauge.shown = key;
      const kind = (isHot, load) => (isHot ? " hot" : load >= FULL ? " full" : "");
      const dash = (isHot, load) => `${isHot ? 1 : load} 2`; // one that is cut carries nothing
      set(gauge.receiving, { class: `gauge in${kind(hot[rank].in, inward)}`,
        "stroke-dasharray": dash(hot[rank].in, inward) });
      set(gauge.sending, { class: `gauge out${kind(hot[rank].out, outward)}`,
        "stroke-dasharray": dash(hot[rank].out, outward) });
      write(gauge.title, say(text, lane.net.receiver ? "port" : "port_shared", { rank,
        receiving: percent(text, inward), sending: percent(text, outward) }));
    });
    this.boxes.update(state);
    this.labels.update([...this.portLabels(state, hot), ...this.linkLabels(state)]);
  }

  /** Below a hub and in a box; else on the circle's inner side, where there is room: for one port,
   *  and for those that stand still. The rings of several say it themselves. */
  portLabels(state, hot) {
    const { lane, text } = this;
    const shown = hot.map((port, rank) => rank).filter((rank) => hot[rank].in || hot[rank].out || rank === lane.bottleneck)
      .map((rank) => ({ rank, words: sayPort(lane, state, text, rank) }));
    const apart = shown.length > 1 ? shown.filter(({ words }) => words === say(text, "cut")) : shown;
    return apart.slice(0, MOST_LABELS).map(({ rank, words }) => {
      const { x, y } = this.places[rank];
      const below = this.radiusOf(rank) + 24;
      if (rank === lane.hub || lane.nodes) return { x: Math.min(262, Math.max(58, x)), y: y + below, words };
      const side = Math.sign(Math.round((160 - x) / 20));
      return { words, x: x + side * below, y: y + (side ? 0 : Math.sign(124 - y) * below),
        anchor: ["end", "middle", "start"][side + 1] };
    });
  }

  linkLabels(state) {
    const { lane, text } = this;
    return [...state.hot].flatMap((number) => {
      const words = sayLoad(text, state, number);
      const bar = this.boxes.bars.find(({ link }) => link === number);
      if (bar) return [{ x: bar.x + bar.width / 2, y: bar.y - 8, words }];
      const link = this.links.get(lane.net.pairs.get(number));
      if (!link) return [];
      return [{ ...this.beside(link.at(0.5)), words }];
    });
  }

  /** On the side of a link that looks to the middle of the picture, clear of what travels in it. */
  beside([x, y]) {
    const [dx, dy] = [160 - x, 124 - y];
    const away = Math.hypot(dx, dy) || 1;
    const side = Math.abs(dx) > 24 ? Math.sign(dx) : 0;
    return { x: x + (14 * dx) / away, y: y + (16 * (dy || -away)) / away, anchor: ["end", "middle", "start"][side + 1] };
  }
}
