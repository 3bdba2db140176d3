
// ----------------------------------------------------------------- 5. the clock and its controls

const ICONS = {
  restart: "M5 4h2v12H5z M16 4v12l-8-6z",
  back: "M13 4v12l-8-6z M14 4h1.6v12H14z",
  play: "M6 3.5v13l10.5-6.5z",
  pause: "M5.5 4h3v12h-3z M11.5 4h3v12h-3z",
  forward: "M7 4v12l8-6z M4.4 4H6v12H4.4z",
  end: "M13 4h2v12h-2z M4 4v12l8-6z",
};
const BAR = 22; // height of a bar on the time axis, in pixels
const SETTLED_MS = 400;
const WALL_CLOCK_S = 8; // the slowest lane finishes in this time at speed 1

class Player {
  /** `tell(name, value)` is how Python hears of what the user did; a file has no Python. */
  constructor(root, tell = null) {
    Object.assign(this, { root, tell });
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
    root.onfocusin = root.onpointerover;
    root.onfocusout = root.onpointerleave;
  }

  /** The GPU under the pointer, or in focus, is marked wherever it is shown. */
  light(rank) {
    this.lit = rank;
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
    set(this.root, { lang: data.lang, role: "group", "aria-label": say(this.text, `name_${data.view}`) });
    this.stepwise = data.view === "steps";
    this.lanes = data.lanes.map(prepareLane);
    this.total = Math.max(...this.lanes.map((lane) => lane.time_s));
    const marks = this.lanes.flatMap((lane) => lane.marks.map((mark) => mark.high_s));
    this.end = Math.max(this.total, ...marks) * 1.01 || 1;
    this.events = eventTimes(this.lanes);
    const { unit, number } = steadyFormat(TIME_UNITS, this.total, 5);
    this.formatTime = (time) => `${number(time)} ${unit}`;
    this.draw();
    this.seek(place === null ? data.moment_s ?? data.poster_s : place * this.end);
    if (place !== null) this.settle();
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
    const [View, Timeline] = this.stepwise ? [StepsView, GanttView] : [LaneView, TimelineView];
    const chosen = this.views?.map((view) => view.chosen); // the same cell in another language
    this.views = lanes.map((lane, row) => new View(lane, text, scale, chosen?.[row]));
    this.timeline = new Timeline(lanes, text, this.end, (time) => this.jump(time));
    this.root.replaceChildren(
      make("div", { class: this.stepwise ? "lanes steps" : "lanes" }, ...this.views.map((view) => view.node)),
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
      ...(this.stepwise ? [this.drawPhases()] : []), this.clockText,
      make("label", { class: "speed-box" }, make("span", {}, say(text, "speed")), speed, this.speedText),
      make("span", { class: "keys" }, say(text, "keys")));
  }

  /** A button for each phase of the first lane, to where it begins. */
  drawPhases() {
    const [lane] = this.lanes;
    return make("div", { class: "buttons phases" }, ...lane.phases.map(({ label, op, first }) => {
      const node = make("button", { type: "button", class: op, "data-testid": `phase-${op}`,
        title: say(this.text, "to_phase", { phase: label }) }, label);
      node.onclick = () => this.jump(lane.spans[first].start);
      return node;
    }));
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
      ...(this.stepwise ? this.stepSamples(sample) : []),
      ...(lanes.some((lane) => lane.bottleneck !== null) ? [sample("legend_hot",
        make("s:path", { d: "M 13 12 A 5 5 0 0 1 13 2", class: "gauge hot" }))] : []),
      sample("legend_ports", make("s:path", { d: "M 11 13 A 6 6 0 0 1 11 1", class: "gauge" }),
        make("s:path", { d: "M 11 13 A 6 6 0 0 0 11 1", class: "gauge-track" })),
      ...(has("replayed") ? [sample("legend_replayed", diamond("replayed"))] : []),
      ...(has("vendor") ? [sample("legend_vendor", diamond("vendor"))] : []));
  }

  stepSamples(sample) {
    const thin = (kind) => make("s:rect", { x: 0, y: 2, width: 22, height: THIN, class: kind });
    return [sample("legend_send", thin("out add")), sample("legend_receive", thin("in add")),
      sample("legend_wait", make("s:line", { class: "wait", x1: 0, x2: 22, y1: 7, y2: 7 }))];
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
    this.light(this.lit); // the timeline is drawn anew
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
    this.settle();
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
    this.settle();
  }

  /** Where the user left the clock, told once it stands still: Python runs a script for it. */
  settle() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      if (!this.playing) this.tell?.("moment_s", this.clock);
    }, SETTLED_MS);
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
    clearTimeout(this.settling);
    this.resized.disconnect();
  }
}
