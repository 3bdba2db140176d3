
// --------------------------------------------------------------------------------- 6. the hosts

const PLAYERS = new WeakMap(); // a host calls the export again for new data and new themes
const NOTEBOOK = `:host {
  --st-background-color: var(--jp-layout-color0, var(--vscode-editor-background, Canvas));
  --st-text-color: var(--jp-content-font-color1, var(--vscode-editor-foreground, CanvasText));
  --st-font: var(--jp-content-font-family, system-ui, sans-serif);
}`;

/** One export for three hosts. Streamlit calls it with a component; a file with as much of one as it
 *  has, which is its data; anywidget calls it with nothing and gets what draws a widget. */
export default function mount(component) {
  if (!component) return { render };
  const { data, parentElement, setStateValue } = component;
  let player = PLAYERS.get(parentElement);
  if (!player) {
    player = new Player(parentElement.querySelector(".player"), setStateValue);
    PLAYERS.set(parentElement, player);
  }
  player.update(data);
  return () => {
    player.destroy();
    PLAYERS.delete(parentElement);
  };
}

/** In a notebook: behind a shadow root, because the page's other outputs keep their own style. */
function render({ model, el }) {
  const root = make("div", { class: "player", tabindex: 0, "data-testid": "player" });
  const box = make("div");
  box.attachShadow({ mode: "open" }).append(
    make("style", {}, model.get("stylesheet") + NOTEBOOK), root);
  box.onkeydown = keepKey;
  el.append(box);
  const tell = (name, value) => {
    model.set(name, value);
    model.save_changes();
  };
  const player = new Player(root, tell);
  const update = () => {
    const { lang } = document.documentElement; // the player says it of a page that is its own
    player.update(model.get("data"));
    document.documentElement.lang = lang;
  };
  const themes = new MutationObserver(update);
  themes.observe(document.body, { attributes: true });
  model.on("change:data", update);
  update();
  return () => {
    themes.disconnect();
    model.off("change:data", update);
    player.destroy();
  };
}

/** The player's keys are not the notebook's as long as it has the focus; Shift+Enter is. */
function keepKey(event) {
  const runs = event.shiftKey && event.key === "Enter";
  if (!(runs || event.ctrlKey || event.metaKey || event.altKey)) event.stopPropagation();
}
