// The button that copies the page's address, as a Streamlit component. It is on every page, so
// three more things are done here: the browser learns the language, Back leads to the page before,
// and the keyboard reaches a table that has to be scrolled sideways.

// Streamlit makes an entry in the history whenever the script changes the address, which it does
// each time the clock is left somewhere.
const push = history.pushState;
if (!push.keepsHistoryShort) {
  history.pushState = function pushState(state, title, url) {
    const samePage = new URL(url ?? "", location.href).pathname === location.pathname;
    return (samePage ? history.replaceState : push).call(history, state, title, url);
  };
  history.pushState.keepsHistoryShort = true;
}

// A table too wide for a phone scrolls in its frame; whoever has no pointer needs to get there.
const watch = { words: "", watching: false };

/** What it is, and its columns; where two tables have the same ones, its number. */
function nameOf(table, taken) {
  const columns = [...table.querySelectorAll("th")].map((cell) => cell.textContent.trim()).filter(Boolean);
  const name = [watch.words, columns.join(", ")].filter(Boolean).join(": ");
  let unlike = name;
  for (let number = 2; taken.has(unlike); number++) unlike = `${name} (${number})`;
  taken.add(unlike);
  return unlike;
}

function reachTables() {
  const taken = new Set();
  for (const table of document.querySelectorAll(".stMarkdown table")) {
    const frame = table.parentElement;
    const scrolls = frame.scrollWidth > frame.clientWidth;
    if (scrolls) {
      const name = nameOf(table, taken);
      if (frame.getAttribute("aria-label") === name) continue;
      frame.tabIndex = 0;
      frame.setAttribute("role", "region");
      frame.setAttribute("aria-label", name);
    } else if (frame.hasAttribute("tabindex")) {
      ["tabindex", "role", "aria-label"].forEach((name) => frame.removeAttribute(name));
    }
  }
}

function watchTables(words) {
  watch.words = words;
  if (watch.watching) return;
  watch.watching = true;
  let asked = 0;
  const soon = () => {
    cancelAnimationFrame(asked);
    asked = requestAnimationFrame(reachTables);
  };
  new MutationObserver(soon).observe(document.body, { childList: true, subtree: true });
  new ResizeObserver(soon).observe(document.body);
  soon();
}

export default function mount({ data, parentElement }) {
  watchTables(data.table);
  const [button, field, said] = ["button", "input", "output"]
    .map((name) => parentElement.querySelector(name));
  document.documentElement.lang = data.lang;
  button.lastElementChild.textContent = data.copy;
  button.parentElement.style.visibility = "visible"; // not before it has a name
  field.setAttribute("aria-label", data.field);
  const say = (words) => {
    said.textContent = ""; // the same words once more are news, too
    requestAnimationFrame(() => { said.textContent = words; });
  };
  button.onclick = async () => {
    field.value = location.href;
    try {
      await navigator.clipboard.writeText(field.value);
      field.hidden = true;
      say(data.copied);
    } catch { // no clipboard here, or it is not allowed: the reader copies what is selected
      field.hidden = false;
      field.focus();
      field.select();
      say(data.by_hand);
    }
  };
}
