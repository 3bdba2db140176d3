/* Shows a picture made elsewhere, and reads out the bar that is pointed at or reached by arrows. */
const PICTURES = new WeakMap();

export default function (component) {
  const { parentElement, data } = component;
  let picture = PICTURES.get(parentElement);
  if (!picture) PICTURES.set(parentElement, (picture = mount(parentElement)));
  picture.update(data);
}

function mount(parent) {
  const figure = parent.querySelector(".figure");
  const body = figure.querySelector(".body");
  const readout = figure.querySelector(".readout");
  let shown = null, hint = "", lit = null;

  const bars = () => [...body.querySelectorAll("g.bar")].filter((bar) => bar.getClientRects().length);
  const say = (bar) => {
    lit?.classList.remove("lit");
    lit = bar;
    lit?.classList.add("lit");
    readout.textContent = bar ? bar.querySelector("title").textContent : hint;
    readout.classList.toggle("says", Boolean(bar));
  };

  body.addEventListener("pointerover", (event) => say(event.target.closest("g.bar")));
  body.addEventListener("pointerleave", () => say(null));
  figure.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") say(null);
    if (!way) return;
    event.preventDefault();
    const all = bars(), at = all.indexOf(lit);
    say(all[at < 0 ? (way > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + way))]);
  });

  return {
    update(data) {
      const ground = getComputedStyle(figure).backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255];
      const bright = ground.slice(0, 3).reduce((sum, part) => sum + Number(part), 0) > 380;
      figure.dataset.scheme = bright ? "light" : "dark";
      if (shown === data.html) return;
      body.innerHTML = data.html; // made by us, every word in it escaped
      shown = data.html;
      hint = data.hint;
      figure.lang = data.lang;
      figure.setAttribute("aria-label", data.label);
      say(null);
    },
  };
}
