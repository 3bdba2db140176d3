
// ------------------------------------- nodes with their uplinks, and what a full link has beside it

/** The boxes of GPUs that share a node, each with a bar for every uplink. */
class NodeBoxes {
  constructor(boxes, text) {
    Object.assign(this, { text, bars: [] });
    this.ground = make("s:g", { class: "boxes" });
    this.over = make("s:g", { class: "uplinks" });
    for (const box of boxes) this.drawBox(box);
  }

  drawBox({ label, bars, ...place }) {
    this.ground.append(make("s:rect", { ...place, rx: 6, class: "box" }),
      make("s:text", { x: place.x + 8, y: place.y + 11, class: "box-name" }, label));
    for (const { link, way, name, ...at } of bars) {
      const [fill, title] = [make("s:rect", { ...at, class: "uplink" }), tip(name)];
      this.bars.push({ link, name, fill, title, ...at });
      if (way !== "both" && !this.named(at.y, place.x, way)) {
        this.ground.append(make("s:text", { x: at.x - 3, y: at.y + at.height / 2, class: "way" }, say(this.text, way)));
      }
      this.over.append(make("s:g", { "data-uplink": name }, make("s:rect", { ...at, class: "uplink-track" }), fill, title));
    }
  }

  /** Each way has its word once, before the first of its bars. */
  named(y, x, way) {
    const key = `${x},${y},${way}`;
    this.words ??= new Set();
    return this.words.has(key) || !this.words.add(key);
  }

  update({ load, hot, capacity }) {
    for (const bar of this.bars) {
      const now = Math.min(1, load[bar.link]);
      const kind = hot.has(bar.link) ? "uplink hot" : "uplink";
      if (bar.shown === now && bar.kind === kind) continue;
      Object.assign(bar, { shown: now, kind });
      set(bar.fill, { class: kind, width: bar.width * (hot.has(bar.link) ? 1 : now) });
      write(bar.title, say(this.text, "link", { link: bar.name, load: percent(this.text, now),
        rate: formatRate(capacity[bar.link]) }));
    }
  }
}

/** Words beside what holds others up, and the load of the GPU that carries most: there for every
 *  frame anew, in the elements of the last one. */
class HotLabels {
  constructor() {
    this.node = make("s:g", { class: "hot-labels" });
  }

  update(labels) {
    while (this.node.childNodes.length < labels.length) this.node.append(make("s:text", { class: "hub-label" }));
    [...this.node.childNodes].forEach((node, i) => {
      write(node, labels[i]?.words ?? "");
      if (labels[i]) set(node, { x: labels[i].x, y: labels[i].y, "data-anchor": labels[i].anchor });
    });
  }
}

/** Full, or cut: in words. */
const sayLoad = (text, { capacity, load }, link) =>
  (capacity[link] === 0 ? say(text, "link_cut") : percent(text, Math.min(1, load[link])));

/** What stands beside GPU `rank`: how full its port is, each way; or that it stands still. */
export function sayPort(lane, state, text, rank) {
  const { receiver } = lane.net;
  const ways = receiver ? [["in", receiver + rank, state.receiving], ["out", rank, state.sending]]
    : [["port_both", rank, state.sending]];
  const isCut = ([, link]) => state.hot.has(link) && state.capacity[link] === 0;
  if (ways.every(isCut)) return say(text, "cut");
  return ways.filter((way) => way[2][rank] > 0 || isCut(way))
    .map((way) => `${say(text, way[0])} ${isCut(way) ? say(text, "cut") : percent(text, way[2][rank])}`).join(" · ");
}

/** GPUs whose ports hold somebody up now: those with a hot port, and the one that carries most of
 *  all while it is full, for which others wait that have not begun. */
export function hotPorts({ net, bottleneck }, state) {
  const full = (rank, load, link) => state.hot.has(link) || (rank === bottleneck && load[rank] >= FULL);
  return state.sending.map((_, rank) => ({
    out: full(rank, state.sending, rank), in: full(rank, state.receiving, net.receiver + rank) }));
}
