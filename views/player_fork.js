
// ------------------------------------------------ fork the past: change what is to come from now

const GHOST = 9; // height of the outline of what would have been, in pixels
const FOREVER = "";
const SLOWER = [0.5, 0.25, 0.1, 0.01];
const FASTER = [2, 4, 10];

/** What can be changed: whether it is a GPU's or a link's, the name of the part in the grammar of
 *  `--slow-link`, by which factors, and whether it must come back. */
const CHANGES = {
  stall: { of: "gpu", part: "", factors: [0], ends: true },
  send: { of: "gpu", part: ".tx", factors: [...SLOWER, ...FASTER], oneWay: false },
  receive: { of: "gpu", part: ".rx", factors: [...SLOWER, ...FASTER], oneWay: false },
  port: { of: "gpu", part: "", factors: [...SLOWER, ...FASTER] },
  link: { of: "link", factors: SLOWER },
  cut: { of: "link", factors: [0], ends: true },
};

/** A time in seconds with six digits, as in the address. */
export const roundedTime = (seconds) => Number(seconds.toPrecision(6));

/** A change as `--slow-link` takes it; without `for_s` it lasts. */
export function spellChange({ kind, gpu, src, dst, factor, from_s, for_s }) {
  const { of, part } = CHANGES[kind];
  const link = of === "gpu" ? `gpu${gpu}${part}` : `gpu${src}->gpu${dst}`;
  const until = for_s === null ? "" : `${roundedTime(roundedTime(from_s) + for_s)}s`;
  return `${link}:${factor}@${roundedTime(from_s)}s..${until}`;
}

/** Round durations, from a fiftieth of the run to twice its length. */
export function durations(total) {
  const power = 10 ** Math.floor(Math.log10(total));
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10].map((m) => roundedTime(m * power));
  return steps.filter((step) => step > total / 60 && step < total * 2.5);
}

/** Whether the data differs only in what has been changed: then the clock stands where it stood. */
export function sameRun(before, now) {
  return Boolean(before && now && before.setting === now.setting);
}

/** The panel "Stop here and change something", its button, and what has been changed so far. */
class ForkPanel {
  /** `last` is the panel that this one takes the place of: what was chosen there stays. */
  constructor(player, data, last) {
    Object.assign(this, { player, data, text: player.text });
    const total = Math.max(...player.lanes.map((lane) => lane.ghost?.time_s ?? lane.time_s)) || 1;
    this.lengths = durations(total);
    const usual = this.lengths.find((step) => step >= total / 4) ?? this.lengths[0];
    const choice = { kind: "stall", gpu: Math.min(1, data.gpus - 1), src: 0, dst: 1, factor: 0.1, for_s: usual };
    this.choice = { ...choice, ...last?.choice };
    for (const end of ["gpu", "src", "dst"]) this.choice[end] = Math.min(this.choice[end], data.gpus - 1);
    if (!this.lengths.includes(this.choice.for_s) && this.choice.for_s !== null) this.choice.for_s = usual;
    this.open = last?.open ?? false;
    this.button = make("button", { type: "button", class: "worded fork-button", "data-testid": "fork",
      "aria-controls": "fork-panel", "aria-expanded": this.open }, say(this.text, "fork_open"));
    this.button.onclick = () => this.toggle();
    this.node = make("div", { class: "fork", id: "fork-panel", role: "group", "data-testid": "fork-panel",
      "aria-label": say(this.text, "fork_open") });
    this.nodes = [this.node, this.drawChanges()];
    this.draw();
  }

  get spelt() {
    return this.data.changes.map((change) => change.spelt);
  }

  toggle() {
    this.open = !this.open;
    if (this.open && this.player.playing) this.player.pause();
    this.draw();
    if (this.open) this.selects.kind.focus();
  }

  /** The sentence to fill in: at this moment, this, for so long. */
  draw() {
    set(this.button, { "aria-expanded": this.open });
    this.node.hidden = !this.open;
    this.player.root.classList.toggle("forking", this.open);
    if (!this.open) {
      this.mark();
      return;
    }
    const { text, choice, data } = this;
    const kind = CHANGES[choice.kind];
    const kinds = Object.keys(CHANGES).filter((name) => !(data.one_way && CHANGES[name].oneWay === false));
    const gpus = Array.from({ length: data.gpus }, (_, rank) => [rank, say(text, "gpu_number", { rank })]);
    const factors = kind.factors.map((factor) => [factor, sayFactor(text, factor)]);
    if (!kind.factors.includes(choice.factor)) choice.factor = kind.factors.includes(0.1) ? 0.1 : kind.factors[0];
    if (kind.ends && choice.for_s === null) choice.for_s = this.lengths.at(-1);
    const lengths = this.lengths.map((step) => [step, formatTime(step)]);
    this.selects = {};
    this.when = make("span", { class: "when" });
    this.add = this.act("fork_apply", () => this.apply());
    this.node.replaceChildren(this.when,
      this.select("kind", kinds.map((name) => [name, say(text, `fork_kind_${name}`)])),
      ...(kind.of === "gpu" ? [this.select("gpu", gpus)]
        : [this.select("src", gpus), make("span", {}, "→"), this.select("dst", gpus.filter(([rank]) => rank !== choice.src))]),
      ...(factors.length > 1 ? [this.select("factor", factors)] : []),
      this.select("for_s", kind.ends ? lengths : [...lengths, [FOREVER, say(text, "fork_forever")]]),
      this.add, make("p", { class: "hint" }, say(text, "fork_hint")));
    this.mark();
    this.update();
  }

  select(name, options) {
    const node = make("select", { "data-testid": `fork-${name}`, "aria-label": say(this.text, `fork_label_${name}`) },
      ...options.map(([value, words]) => make("option", { value }, words)));
    const now = this.choice[name] ?? FOREVER;
    node.value = now;
    if (node.value !== String(now)) [node.value] = options[0]; // such as a link's two ends in one
    this.selects[name] = node;
    node.onchange = () => this.choose({ [name]: name === "kind" ? node.value
      : node.value === FOREVER ? null : Number(node.value) });
    this.choice[name] = name === "kind" ? node.value : node.value === FOREVER ? null : Number(node.value);
    return node;
  }

  act(name, act) {
    const node = make("button", { type: "button", class: "worded", "data-testid": name }, say(this.text, name));
    node.onclick = act;
    return node;
  }

  choose(values) {
    Object.assign(this.choice, values);
    keepingFocus(this.player.root, () => this.draw());
  }

  /** A click on a GPU or a link while the panel is open chooses it; on a chosen link, its twin. */
  pick(target) {
    const node = target.closest("[data-rank], [data-link]");
    if (!this.open || !node) return;
    const { kind, src, dst } = this.choice;
    if (node.dataset.rank !== undefined) {
      const gpu = Number(node.dataset.rank);
      if (gpu < this.data.gpus) this.choose({ gpu, kind: CHANGES[kind].of === "gpu" ? kind : "stall" });
      return;
    }
    let ends = node.dataset.link.split(">").map(Number);
    const again = CHANGES[kind].of === "link" && ends.every((end) => end === src || end === dst);
    const back = `[data-link="${dst}>${src}"]`;
    if (again && node.closest("svg").querySelector(back)) ends = [dst, src];
    if (ends.some((end) => end >= this.data.gpus)) return;
    this.choose({ src: ends[0], dst: ends[1], kind: CHANGES[kind].of === "link" ? kind : "link" });
  }

  /** What the change is about is marked in every network. */
  mark() {
    const { kind, gpu, src, dst } = this.choice;
    const isGpu = CHANGES[kind].of === "gpu";
    for (const node of this.player.root.querySelectorAll(".gpu, [data-link]")) {
      const chosen = isGpu ? node.dataset.rank === String(gpu) : node.dataset.link === `${src}>${dst}`;
      node.classList.toggle("to-change", this.open && chosen);
    }
  }

  update() {
    const { player } = this;
    if (!this.open) return;
    write(this.when, say(this.text, "fork_when", { time: player.formatTime(player.clock) }));
    this.add.disabled = player.clock >= player.total || this.data.changes.length >= this.data.most;
  }

  apply() {
    if (this.player.playing) this.player.pause();
    const { choice } = this;
    const change = { ...choice, from_s: this.player.clock };
    this.told([...this.spelt, spellChange(change)]);
  }

  /** Python hears of all changes, and runs them again; the stamp tells two equal lists apart. */
  told(list) {
    this.player.touched = true;
    this.player.tell("change", { list, stamp: performance.now() });
  }

  /** What has been changed, by how much that delays everyone, and the way back. */
  drawChanges() {
    const { text, data } = this;
    const { changes } = data;
    const summary = make("p", { class: "summary", "data-testid": "fork-summary" }, data.summary);
    const rows = changes.map(({ label }, i) => make("li", {}, `${numbers[i]} ${label}`));
    const node = make("div", { class: "forked", role: "status", "data-testid": "forked" });
    if (!changes.length) return node;
    const undo = this.act("fork_undo", () => this.told(this.spelt.slice(0, -1)));
    const clear = this.act("fork_clear", () => this.told([]));
    node.append(summary, make("ul", {}, ...rows), undo, ...(changes.length > 1 ? [clear] : []));
    return node;
  }
}

const sayFactor = (text, factor) => (factor > 1 ? say(text, "fork_times", { factor })
  : say(text, "percent", { value: 100 * factor }));

/** Draws anew and gives the focus back to what takes the place of the element that had it. */
function keepingFocus(root, draw) {
  const name = root.getRootNode().activeElement?.dataset?.testid;
  draw();
  if (!name || name === root.dataset.testid) return;
  const found = [name, "fork_apply", "fork"].map((id) => root.querySelector(`[data-testid="${id}"]:not(:disabled)`));
  found.find(Boolean)?.focus();
}

// ------------------------------------------------------------ what would have been, on the time axis

/** An outline per step below the lane's bars, a hollow flag at the end, and its name. */
function drawGhost(axis, { ghost, name, time_s }, y) {
  if (!ghost) return [];
  const bars = ghost.bars.map(([from, to]) => make("s:rect", { class: "ghost", x: axis.x(from), y,
    width: Math.max(0.5, axis.x(to) - axis.x(from)), height: GHOST }));
  const end = axis.x(ghost.time_s);
  const words = say(axis.text, "ghost", { label: ghost.label, time: formatTime(ghost.time_s) });
  const width = [...words].reduce((sum, c) => sum + (c > "\u2e80" ? 11 : 5.8), 18);
  const left = end + width > axis.left + axis.width + 70; // no room on the right
  return [make("s:g", { class: "ghosts", "data-testid": `ghost-${name}`, "data-time": ghost.time_s }, ...bars,
    make("s:path", { class: "ghost-flag", d: `M ${end} ${y + GHOST + 1} V ${y - 1} l 8 4 l -8 4` }),
    make("s:text", { class: left ? "ghost-name before" : "ghost-name", x: end + (left ? -6 : 12),
      y: y + GHOST / 2 + 1 }, words), tip(`${words}; ${formatTime(time_s)}`))];
}

/** Where in its lane's bar a phase is drawn: phases that overlap share the height. */
function barOf(lane, op, y) {
  lane.overlap ??= lane.phases.some((phase, i) => i > 0
    && phaseStart(lane, phase) < phaseEnd(lane, lane.phases[i - 1]) - 1e-9 * lane.time_s);
  if (!lane.overlap) return { y, height: BAR };
  return { y: op === "add" ? y : y + BAR / 2, height: BAR / 2 };
}

const phaseEnd = (lane, { first, last }) => Math.max(...lane.spans.slice(first, last + 1).map(({ end }) => end));

/** While a change lasts there is a band behind the bars. */
function drawBands(axis, top) {
  return axis.changes.map(({ from_s, until_s }) => {
    const [from, to] = [axis.x(from_s), axis.x(Math.min(until_s ?? axis.end, axis.end))];
    return make("s:rect", { class: "change", x: from, y: top, width: Math.max(2, to - from),
      height: axis.bottom - top });
  });
}

/** Where the past was forked: a numbered line at the moment of each change. */
function drawChanges(axis, top) {
  return axis.changes.map(({ label, from_s }, i) => {
    const x = axis.x(from_s);
    return make("s:g", { class: "change", "data-testid": "change-mark" },
      make("s:path", { d: axis.down(x) }),
      make("s:text", { x: x + 5, y: top - 4 }, numbers[i]), tip(label));
  });
}

const numbers = "①②③④⑤⑥⑦⑧";
