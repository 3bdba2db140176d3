// Chooses files, or takes what is dropped, and hands their text on. Nothing is kept here.
const MOUNTED = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  let part = MOUNTED.get(parentElement);
  if (!part) MOUNTED.set(parentElement, (part = mount(parentElement)));
  part.update(data, setTriggerValue);
}

function mount(parent) {
  const [zone, input, words, note] = [".zone", "input", ".choose", ".note"]
    .map((selector) => parent.querySelector(selector));
  let limits = { most_files: 0, most_bytes: 0 }, send = () => {};

  // One more than is read, so that somebody is told of it; too large a file is named, not sent.
  const take = async (files) => {
    const taken = [...files].slice(0, limits.most_files + 1);
    const texts = taken.map((file) => (file.size <= limits.most_bytes ? file.text() : null));
    const read = await Promise.all(texts);
    if (taken.length) send("files", taken.map((file, at) => [file.name, read[at]]));
  };
  input.addEventListener("change", async () => {
    await take(input.files);
    input.value = ""; // the same file again is news, too
  });
  for (const kind of ["dragover", "dragleave", "drop"]) {
    zone.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files);
    });
  }
  return {
    update(data, setTriggerValue) {
      words.textContent = data.choose;
      note.textContent = data.note;
      zone.lang = data.lang;
      zone.style.visibility = "visible"; // not before it has a name
      limits = data;
      send = setTriggerValue;
    },
  };
}
