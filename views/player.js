
// -------------------------------------------------------------------- the clock and its controls

const BAR = 22; // height of a bar on the time axis, in pixels
const SETTLED_MS = 400;
const WALL_CLOCK_S = 8; // the slowest lane finishes in this time at speed 1
const LOOP_REST_S = 0.8; // a loop shows its end before it starts again

class Player {
  /** `tell(name, value)` is how Python hears of what the user did; a file has no Python. */
  constructor(root, tell = null) {
    Object.assign(this, { root, tell });
    this.playing = false;
    this.touched = false;
    this.looping = false;
    this.clock = 0;
    this.motion = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");
    this.resized = new ResizeObserver(() => this.resize());
    this.resized.observe(root);
    root.onkeydown = (event) => this.key(event);
    root.onpointerover = (event) => this.light(event.target.closest("[data-rank]")?.dataset.rank);
    root.onpointerleave = () => this.light();
    root.onfocusin = root.onpointerover;
    root.onfocusout = root.onpointerleave;
    root.onclick = (event) => {
      this.fork?.pick(event.target);
      const rank = event.target.closest("[data-rank]")?.dataset.rank;
      if (rank !== undefined) this.gpus.choose(Number(rank));
    };
  }

  /** The GPU under the pointer or in focus, or else the chosen one, is marked wherever it is. */
  light(rank) {
    this.hovered = rank;
    const lit = rank ?? String(this.gpus?.rank);
    for (const node of this.root.querySelectorAll("[data-rank]")) {
      node.classList.toggle("lit", node.dataset.rank === lit);
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
    const stays = sameRun(this.fork?.data, data.fork) ? this.clock : null; // only its future is new
    this.words = words;
    this.text = data.text;
    document.documentElement.lang = data.lang;
    set(this.root, { lang: data.lang, role: "group", "aria-label": say(this.text, `name_${data.view}`) });
    this.stepwise = data.view === "steps";
    this.lanes = data.lanes.map(prepareLane);
    this.total = Math.max(...this.lanes.map((lane) => lane.time_s));
    const marks = this.lanes.flatMap((lane) => lane.marks.map((mark) => mark.high_s));
    const ghosts = this.lanes.map((lane) => lane.ghost?.time_s ?? 0);
    this.end = Math.max(this.total, ...marks, ...ghosts) * 1.01 || 1;
    this.events = eventTimes(this.lanes);
    const { unit, number } = steadyFormat(TIME_UNITS, this.total, 5);
    this.formatTime = (time) => `${number(time)} ${unit}`;
    this.fork = data.fork && this.tell ? new ForkPanel(this, data.fork, this.fork) : null;
    this.changes = data.fork?.changes;
    this.root.dataset.view = data.view;
    keepingFocus(this.root, () => this.draw());
    this.seek(stays !== null ? stays : place === null ? data.moment_s ?? data.poster_s : place * this.end);
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
    const hooks = { jump: (time) => this.jump(time), choose: (rank) => this.gpus.choose(rank) };
    const chosen = this.views?.map((view) => view.chosen); // the same cell in another language
    this.views = lanes.map((lane, row) => new View(lane, text, scale, { ...hooks, chosen: chosen?.[row] }));
    this.timeline = new Timeline(lanes, text, this.end, hooks.jump, this.changes);
    this.moment = new MomentTable(lanes, text, scale, this.formatTime, this.moment?.node.open);
    this.help = new KeyHelp(text, this.stepwise);
    this.speed = new SpeedRange(text, this.speed?.power);
    this.gpus = new GpuChooser(lanes, text, this.gpus?.rank ?? null, {
      chosen: (rank) => this.follow(rank), jumpFrom: (times, way) => this.jumpFrom(times, way) });
    this.root.replaceChildren(
      make("div", { class: this.stepwise ? "lanes steps" : "lanes" }, ...this.views.map((view) => view.node)),
      make("div", { class: "stage" }, this.drawControls(),
        ...(this.fork?.nodes ?? []), this.timeline.node, this.drawScrubber()),
      drawLegend(lanes, text, this.stepwise), this.moment.node, this.help.node);
    for (const view of this.views) view.follow(this.gpus.rank);
    this.fork?.mark();
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
    const button = (name, act) => iconButton(this.text, name, act);
    this.playButton = button("play", () => this.toggle());
    this.loopButton = button("loop", () => this.toggleLoop());
    set(this.loopButton, { "aria-pressed": this.looping });
    this.clockText = make("output", { class: "clock", "data-testid": "time" });
    return make("div", { class: "controls" },
      make("div", { class: "buttons" }, button("restart", () => this.jump(0)),
        button("back", () => this.step(-1)), this.playButton,
        button("forward", () => this.step(1)),
        button("end", () => this.jump(this.total)), this.loopButton),
      this.clockText, this.speed.node, this.gpus.node,
      ...(this.fork ? [this.fork.button] : []), this.help.button);
  }

  /** What the lanes tell of when a GPU has been chosen; null: as without one. */
  follow(rank) {
    for (const view of this.views) view.follow(rank);
    this.light(this.hovered);
    this.show();
  }

  /** To the phase that adds or copies, of the lane in focus, else of the first. */
  jumpToPhase(op, name) {
    const lane = this.lanes.find((one) => one.name === name) ?? this.lanes[0];
    const phase = lane.phases.find((one) => one.op === op);
    if (phase) this.jump(phaseStart(lane, phase));
  }

  toggleLoop() {
    this.looping = !this.looping;
    set(this.loopButton, { "aria-pressed": this.looping });
  }

  resize() {
    if (!this.timeline) return;
    this.timeline.resize(this.timeline.node.parentElement.clientWidth);
    this.scrubber.style.marginLeft = `${this.timeline.left - 8}px`; // half of the thumb
    this.scrubber.style.width = `${this.timeline.width + 16}px`;
    this.light(this.hovered); // the timeline is drawn anew
    this.show();
  }

  /** A key that means something here is not the page's as well. */
  key(event) {
    const act = actionFor(this, event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
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
    this.from = this.clock;
    this.before = null;
    this.rested_s = 0;
    this.frame = requestAnimationFrame((now) => this.tick(now));
    this.showPlaying();
  }

  pause() {
    if (this.clock < this.total) this.clock = this.shownTime();
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
    const again = this.looping && this.rested_s > LOOP_REST_S;
    const rate = (this.total / WALL_CLOCK_S) * this.speed.factor;
    if (again) this.from = 0;
    this.seek(again ? 0 : Math.min(this.total, this.clock + passed_s * rate));
    this.rested_s = this.clock < this.total ? 0 : this.rested_s + passed_s;
    if (this.clock >= this.total && !this.looping) this.pause();
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
    this.jumpFrom(this.events, direction);
  }

  jumpFrom(times, direction) {
    const time = eventFrom(times, this.clock, direction, this.total * 1e-9);
    if (time !== undefined) this.jump(time);
  }

  seek(time) {
    this.clock = Math.min(Math.max(time, 0), this.end);
    this.show();
  }

  /** With reduced motion a running clock shows only the moments at which something happens, and
   *  none before the one that it started from. */
  shownTime() {
    if (!(this.playing && this.motion?.matches)) return this.clock;
    return steppedTime(this.events, this.from, this.clock);
  }

  show() {
    const time = this.shownTime();
    const states = this.lanes.map((lane) => stateAt(lane, time));
    this.views.forEach((view, row) => view.update(states[row]));
    this.moment.update(states, !this.playing);
    this.timeline.update(time);
    this.fork?.update();
    this.scrubber.value = time / this.end;
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

