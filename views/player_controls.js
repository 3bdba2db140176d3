// ----------------------------------------------------------------- controls that know their value

const ICONS = {
  restart: "M5 4h2v12H5z M16 4v12l-8-6z",
  back: "M13 4v12l-8-6z M14 4h1.6v12H14z",
  play: "M6 3.5v13l10.5-6.5z",
  pause: "M5.5 4h3v12h-3z M11.5 4h3v12h-3z",
  forward: "M7 4v12l8-6z M4.4 4H6v12H4.4z",
  end: "M13 4h2v12h-2z M4 4v12l8-6z",
  loop: "M6 5h6.5a4.5 4.5 0 0 1 3.3 7.6l-1.2-1.2a2.8 2.8 0 0 0-2.1-4.7H6V9L2.6 5.9 6 2.8z "
    + "M14 15H7.5a4.5 4.5 0 0 1-3.3-7.6l1.2 1.2a2.8 2.8 0 0 0 2.1 4.7H14V11l3.4 3.1L14 17.2z",
  gpu_back: "M8 4v12l-7-6z M14.5 6a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
  gpu_forward: "M12 4v12l7-6z M5.5 6a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
};

function iconButton(text, name, act) {
  const words = say(text, name);
  const node = make("button", { type: "button", "aria-label": words, title: words, "data-testid": name },
    make("s:svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, make("s:path", { d: ICONS[name] })));
  node.onclick = act;
  return node;
}

/** The speed, two to the power of the slider's value: from 1/64 to see a single message. */
class SpeedRange {
  constructor(text, power = 0) {
    const words = say(text, "speed");
    this.output = make("output", { class: "speed", "data-testid": "speed-text" });
    this.input = make("input", { type: "range", min: -6, max: 4, step: 1, class: "rate",
      "aria-label": words, "data-testid": "speed" });
    this.input.oninput = () => this.set(Number(this.input.value));
    this.node = make("label", { class: "labelled" }, make("span", {}, words), this.input, this.output);
    this.set(power);
  }

  get factor() {
    return 2 ** this.power;
  }

  set(power) {
    this.power = Math.min(Number(this.input.max), Math.max(Number(this.input.min), power));
    const words = power < 0 ? `1/${2 ** -this.power}×` : `${this.factor}×`;
    this.input.value = this.power;
    set(this.input, { "aria-valuetext": words });
    write(this.output, words);
  }
}

/** Chooses a GPU, which is then marked everywhere and told of by the captions, and steps through
 *  its events. `chosen(rank)` hears of every choice, null being none. */
class GpuChooser {
  constructor(lanes, text, rank, { chosen, jumpFrom }) {
    Object.assign(this, { lanes, chosen, jumpFrom });
    this.n = Math.max(...lanes.map((lane) => lane.n));
    const options = Array.from({ length: this.n }, (_, one) => make("option", { value: one }, String(one)));
    this.select = make("select", { "data-testid": "gpu", "aria-label": say(text, "choose_gpu") },
      make("option", { value: "" }, "–"), ...options);
    this.select.onchange = () => this.choose(this.select.value === "" ? null : Number(this.select.value));
    this.node = make("div", { class: "labelled" }, make("span", {}, say(text, "gpu")), this.select,
      iconButton(text, "gpu_back", () => this.step(-1)),
      iconButton(text, "gpu_forward", () => this.step(1)));
    this.show(rank < this.n ? rank : null);
  }

  show(rank) {
    this.rank = rank;
    this.select.value = rank ?? "";
    this.events = rank === null ? [] : eventTimes(this.lanes, rank);
  }

  choose(rank) {
    this.show(rank);
    this.chosen(rank);
  }

  /** The key of the chosen GPU lets it go again. */
  digit(rank) {
    if (rank < this.n) this.choose(rank === this.rank ? null : rank);
  }

  /** To the next thing that the GPU starts to send or has received; without one, GPU 0's. */
  step(direction) {
    if (this.rank === null) this.choose(0);
    this.jumpFrom(this.events, direction);
  }
}

