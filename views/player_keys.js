// ------------------------------------------------------------------ keys, and the table of them

const DIGITS = "0123456789";

/** Every key of the player, once: what it does and how the table shows it. Streamlit's own, r and
 *  c, are left to it. */
const KEYS = [
  { keys: " ", shown: ["key_space"], what: "key_play", act: (player) => player.toggle() },
  { keys: ["ArrowLeft", "ArrowRight"], shown: ["←", "→"], what: "key_step",
    act: (player, key) => player.step(key === "ArrowLeft" ? -1 : 1) },
  { keys: ["Home", "End"], shown: ["Home", "End"], what: "key_ends",
    act: (player, key) => player.jump(key === "Home" ? 0 : player.total) },
  { keys: ",.", shown: [",", "."], what: "key_speed",
    act: (player, key) => player.speed.set(player.speed.power + (key === "," ? -1 : 1)) },
  { keys: "l", shown: ["L"], what: "key_loop", act: (player) => player.toggleLoop() },
  { keys: "ag", shown: ["A", "G"], what: "key_phases",
    act: (player, key, lane) => player.jumpToPhase(key === "a" ? "add" : "copy", lane) },
  { keys: DIGITS, shown: ["0", "–", "9"], what: "key_gpu",
    act: (player, key) => player.gpus.digit(Number(key)) },
  { keys: "pn", shown: ["P", "N"], what: "key_gpu_events",
    act: (player, key) => player.gpus.step(key === "p" ? -1 : 1) },
  { keys: "?", shown: ["?"], what: "key_help", act: (player) => player.help.toggle() },
];

/** Keys that the element in focus needs for itself. */
function ownKeys(target) {
  if (target.tagName === "SELECT") return (key) => key !== "?"; // letters and digits choose
  if (target.dataset.testid === "speed") return (key) => /^(Arrow|Home|End)/.test(key);
  if (["BUTTON", "SUMMARY"].includes(target.tagName)) return (key) => key === " ";
  return () => false;
}

/** What the key does now, or undefined; while the table of keys is open only `?` does anything. */
function actionFor(player, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || ownKeys(event.target)(event.key)) return undefined;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const entry = KEYS.find(({ keys }) => keys.includes(key));
  if (!entry || (player.help.node.open && key !== "?")) return undefined;
  const lane = event.target.closest("[data-lane]")?.dataset.lane;
  return () => entry.act(player, key, lane);
}

/** The table of keys: a dialog of the browser's own, which takes the focus, gives it back, and
 *  closes with Escape. */
class KeyHelp {
  constructor(text, stepwise) {
    const key = (name) => (name.startsWith("key_") ? say(text, name) : name);
    const rows = KEYS.map(({ shown, what }) => make("tr", {},
      make("th", { scope: "row" }, ...shown.map((name) => (name === "–" ? "–" : make("kbd", {}, key(name))))),
      make("td", {}, say(text, what))));
    const arrows = [..."←↑↓→"].map((name) => make("kbd", {}, name));
    const cells = make("tr", {}, make("th", { scope: "row" }, ...arrows),
      make("td", {}, say(text, "key_cells")));
    const close = make("button", { type: "button", class: "worded", "data-testid": "help-close",
      autofocus: "" }, say(text, "close"));
    close.onclick = () => this.node.close();
    this.node = make("dialog", { class: "help", "data-testid": "help", "aria-label": say(text, "keys") },
      make("h2", {}, say(text, "keys")),
      make("table", {}, make("tbody", {}, ...rows, ...(stepwise ? [cells] : []))), close);
    this.button = make("button", { type: "button", "data-testid": "help-open", "aria-label": say(text, "keys"),
      title: say(text, "keys"), "aria-keyshortcuts": "?", "aria-haspopup": "dialog" }, "?");
    this.button.onclick = () => this.toggle();
  }

  toggle() {
    if (this.node.open) this.node.close();
    else this.node.showModal();
  }
}

