// The player: lanes of traces on one clock, drawn in the browser. No dependency, no build step.
//
// player.py joins the files into one module, in this order. player_core.js is pure: what is true
// of a lane at time t. player_lanes.js draws that, player_timeline.js the time axis, player_steps.js
// adds the chunk table and the time of every GPU, player.js is the clock with its controls, and
// player_host.js puts it into a page.
// What a lane holds is written in player.py; all times are simulated seconds, sizes are bytes.

// ---------------------------------------------------------------- 1. core: lane and time -> state

const ADD = 1;
const MANY = 8; // GPUs in a lane from which on things are drawn smaller
const FULL = 0.999; // a port is full from here on: rates are sums of floats

/** A lane with its columns turned into what the functions below look up. */
export function prepareLane(lane) {
  const { transfers: t, pieces } = lane;
  const count = t.step.length;
  const whole = (start, end) => t.step.map((_, i) => [[start[i], end[i], t.nbytes[i]]]);
  const send = whole(t.send_start_s, t.send_end_s);
  const receive = whole(t.receive_start_s, t.receive_end_s);
  const split = new Set();
  for (let row = 0; row < pieces.transfer.length; row++) {
    const side = pieces.sending[row] ? send : receive;
    const i = pieces.transfer[row];
    const key = `${i},${pieces.sending[row]}`;
    if (!split.has(key)) side[i] = [];
    split.add(key);
    side[i].push([pieces.start_s[row], pieces.end_s[row], pieces.nbytes[row]]);
  }
  const steps = Array.from({ length: lane.steps }, () => ({ start: Infinity, end: -Infinity }));
  for (let i = 0; i < count; i++) {
    const step = steps[t.step[i]];
    step.start = Math.min(step.start, t.send_start_s[i]);
    step.end = Math.max(step.end, t.receive_end_s[i]);
    step.op = t.op[i];
  }
  return { ...lane, count, send, receive, spans: steps };
}

/** Bytes moved by `time` through pieces of constant rate; a piece without length is a jump. */
export function movedAt(pieces, time) {
  let moved = 0;
  for (const [start, end, nbytes] of pieces) {
    const share = end > start ? (time - start) / (end - start) : Number(time >= start);
    moved += nbytes * Math.min(1, Math.max(0, share));
  }
  return moved;
}

function rateAt(pieces, time) {
  for (const [start, end, nbytes] of pieces) {
    if (start <= time && time < end) return nbytes / (end - start);
  }
  return 0;
}

/** Everything the picture shows of a lane at `time`. */
export function stateAt(lane, time) {
  const { transfers: t, n } = lane;
  const zeros = () => new Array(n).fill(0);
  const state = { time, sent: zeros(), received: zeros(), sending: zeros(), receiving: zeros() };
  state.active = [];
  for (let i = 0; i < lane.count; i++) {
    state.sent[t.src[i]] += movedAt(lane.send[i], time);
    state.received[t.dst[i]] += movedAt(lane.receive[i], time);
    const [start, arrival] = [t.send_start_s[i], t.receive_end_s[i]];
    if (!(start <= time && time < arrival)) continue;
    const rate = rateAt(lane.send[i], time);
    state.sending[t.src[i]] += rate / lane.send_rate[t.src[i]];
    state.receiving[t.dst[i]] += rateAt(lane.receive[i], time) / lane.receive_rate[t.dst[i]];
    const load = rate / Math.min(lane.send_rate[t.src[i]], lane.receive_rate[t.dst[i]]);
    state.active.push({ i, load, progress: (time - start) / (arrival - start) });
  }
  const started = lane.spans.filter((step) => step.start <= time).length;
  const running = state.active.map(({ i }) => t.step[i]);
  state.step = running.length ? Math.min(...running) : started - 1;
  state.finished = time >= lane.time_s;
  state.inUse = [...state.sending, ...state.receiving].reduce((a, b) => a + b, 0) / (2 * n);
  return state;
}

/** The moments at which something starts or arrives in any lane, in order, each once. */
export function eventTimes(lanes) {
  const all = lanes.flatMap(({ transfers: t }) => [...t.send_start_s, ...t.receive_end_s]);
  const times = [0, ...all].sort((a, b) => a - b);
  const nearby = times[times.length - 1] * 1e-9;
  return times.filter((time, i) => !(times[i + 1] - time <= nearby)); // the last: all has happened
}

/** `GPUs 1–3`, or `GPUs 1, 4, 6` when they are not consecutive. */
export function listRanks(ranks, text) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const run = sorted.length > 2 && sorted[sorted.length - 1] - sorted[0] === sorted.length - 1;
  const list = run ? `${sorted[0]}–${sorted[sorted.length - 1]}` : sorted.join(", ");
  return say(text, "gpus", { list });
}

/** One sentence for what happens in the lane now; it is read off the transfers under way.
 *  Where several GPUs do the same it tells what arrives at `followed`, if anything does. */
export function captionAt(lane, state, text, followed = null) {
  if (state.finished) return say(text, "done", { time: formatTime(lane.time_s) });
  const t = lane.transfers;
  const moving = state.active.filter(({ load }) => load > 0);
  const now = moving.find(({ i }) => t.dst[i] === followed) ?? moving[0];
  const step = now ? t.step[now.i] : state.step;
  const words = now ? whatHappens(lane, state, text, moving, now) : say(text, "in_flight");
  return say(text, "step", { step: step + 1, steps: lane.steps }) + say(text, "colon") + words;
}

function whatHappens(lane, state, text, moving, { i, load }) {
  const { transfers: t, n } = lane;
  const word = t.op[i] === ADD ? "add" : "copy";
  const what = lane.chunks > 1 ? say(text, "chunk", { chunk: t.chunk[i] }) : say(text, "buffer");
  const values = { src: t.src[i], dst: t.dst[i], what, have: t.contributions[i], n };
  values.share = percent(text, load);
  const sources = new Set(moving.map((m) => t.src[m.i]));
  const targets = new Set(moving.map((m) => t.dst[m.i]));
  if (lane.chunks > 1 && sources.size === targets.size) {
    values.busy = moving.length;
    return say(text, `${moving.length < n ? "some" : "each"}_${word}`, values) + inNumbers(lane, text, i);
  }
  if (moving.length === 1) {
    const idle = n > 2 ? say(text, n === 3 ? "idle_one" : "idle", { idle: n - 2 }) : "";
    return say(text, `single_${word}`, values) + idle;
  }
  if (targets.size === 1) {
    const full = state.receiving[t.dst[i]] >= FULL ? say(text, "port_full_in", values) : "";
    return say(text, "gather", { ...values, srcs: listRanks(sources, text) }) + full;
  }
  const full = state.sending[t.src[i]] >= FULL ? say(text, "port_full_out", values) : "";
  return say(text, "scatter", { ...values, dsts: listRanks(targets, text) }) + full;
}

/** `[3, 1] + [4, 8] = [7, 9]`, where the lane has numbers. */
function inNumbers(lane, text, i) {
  if (!lane.cells) return "";
  const { sent, values } = lane.cells;
  if (lane.transfers.op[i] !== ADD) return say(text, "numbers_copy", { values: listNumbers(values[i]) });
  const own = values[i].map((sum, k) => sum - sent[i][k]);
  const lists = { own: listNumbers(own), sent: listNumbers(sent[i]), sum: listNumbers(values[i]) };
  return say(text, "numbers_add", lists);
}

/** `[3, 1]`; of many numbers the first ones. */
export function listNumbers(numbers) {
  const shown = numbers.length > 4 ? [...numbers.slice(0, 3), "…"] : numbers;
  return `[${shown.join(", ")}]`;
}

/** The chunk table at `time`: for each GPU and chunk its numbers, whose contributions are in them
 *  in which order, and the transfers that bring it something or read it now. */
export function cellsAt(lane, state, time) {
  const { transfers: t, cells } = lane;
  const table = cells.start.map((row, rank) =>
    row.map((values) => ({ values, who: values.length ? [rank] : [], arriving: null, leaving: null })));
  for (let i = 0; i < lane.count; i++) { // in order of steps
    if (t.receive_end_s[i] > time) continue;
    Object.assign(table[t.dst[i]][t.chunk[i]], { values: cells.values[i], who: cells.who[i] });
  }
  for (const transfer of state.active) {
    table[t.dst[transfer.i]][t.chunk[transfer.i]].arriving = transfer;
    table[t.src[transfer.i]][t.chunk[transfer.i]].leaving = transfer;
  }
  return table;
}

/** All that ever arrives in a cell, in order: transfers, by their number. */
export function arrivalsIn(lane, rank, chunk) {
  const { transfers: t } = lane;
  return Array.from({ length: lane.count }, (_, i) => i)
    .filter((i) => t.dst[i] === rank && t.chunk[i] === chunk);
}

/** When a GPU neither sends nor receives: [start, end] pairs, until the last GPU is done. */
export function waitsOf(lane, rank) {
  const { transfers: t } = lane;
  const busy = [];
  for (let i = 0; i < lane.count; i++) {
    if (t.src[i] === rank) busy.push([t.send_start_s[i], t.send_end_s[i]]);
    if (t.dst[i] === rank) busy.push([t.receive_start_s[i], t.receive_end_s[i]]);
  }
  busy.sort((a, b) => a[0] - b[0]).push([lane.time_s, lane.time_s]);
  const waits = [];
  let free = 0;
  for (const [start, end] of busy) {
    if (start - free > 1e-9 * lane.time_s) waits.push([free, start]);
    free = Math.max(free, end);
  }
  return waits;
}

/** A phrase of the catalogue with its {placeholders} filled in, spaced as views/text.py does. */
export function say(text, key, values = {}) {
  const filled = text[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  return filled.replace(/([\u4e00-\u9fff])(?=[A-Za-z0-9])|([A-Za-z0-9])(?=[\u4e00-\u9fff])/g, "$1$2 ");
}

const TIME_UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const SIZE_UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];

const unitFor = (units, value) => units.find(([, f]) => value >= f * 0.99995) ?? units.at(-1);

/** One unit and number of digits for all values up to `largest`: nothing jumps while they move. */
export function steadyFormat(units, largest, significant) {
  const [unit, factor] = unitFor(units, largest);
  const whole = Math.max(1, Math.floor(Math.log10(largest / factor || 1)) + 1);
  const digits = unit === "B" ? 0 : Math.max(2, significant - whole);
  return { unit, number: (value) => (value / factor).toFixed(digits) };
}

/** Four digits in the unit that reads best, like units.format_time in Python. */
export function formatTime(seconds) {
  if (seconds === 0) return "0 s";
  const [name, factor] = unitFor(TIME_UNITS, seconds);
  return `${Number((seconds / factor).toPrecision(4))} ${name}`;
}

const percent = (text, share) => say(text, "percent", { value: Math.round(share * 100 + 1e-6) });

/** Round steps of 1, 2 or 5 for an axis from 0 to `end`, about `count` of them. */
export function axisTicks(end, count) {
  const rough = end / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

/** Node centres in a 320 × 248 picture: a circle, or spokes around a hub with a gap below it. */
export function layout(n, hub) {
  const around = (degrees) => {
    const angle = (degrees * Math.PI) / 180;
    return { x: Math.cos(angle), y: Math.sin(angle) };
  };
  const spokes = n - 1;
  const step = spokes > 1 ? Math.min(360 / spokes, 270 / (spokes - 1), 120) : 0;
  const places = Array.from({ length: n }, (_, rank) => {
    if (hub === null) return around(-90 + (360 * rank) / n);
    if (rank === hub) return { x: 0, y: 0 };
    return around(-90 + ((rank < hub ? rank : rank - 1) - (spokes - 1) / 2) * step);
  });
  const ys = places.map(({ y }) => y);
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const radius = Math.min(120, 202 / (bottom - top)); // a star with few spokes is not centred
  return places.map(({ x, y }) => ({
    x: 160 + radius * x, y: 124 + radius * (y - (top + bottom) / 2),
  }));
}

