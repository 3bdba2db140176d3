// ------------------------------------------------------------- words: a state, said and formatted

/** `Step 3 of 6`, or `Steps 3–4 of 126` where one mark stands for several. */
export function sayStep(lane, text, { first, last }) {
  const values = { first: first + 1, last: last + 1, step: first + 1, steps: lane.steps };
  return say(text, first === last ? "step" : "step_range", values);
}

/** One sentence for what happens in the lane now; it is read off the transfers under way.
 *  Where several GPUs do the same it tells what arrives at `followed`, if anything does. */
export function captionAt(lane, state, text, followed = null) {
  if (state.finished) return say(text, "done", { time: formatTime(lane.time_s) });
  const t = lane.transfers;
  const moving = state.active.filter(({ load }) => load > 0);
  const now = moving.find(({ i }) => t.dst[i] === followed) ?? moving[0];
  const span = lane.spans[now ? t.step[now.i] : state.step];
  const words = now ? whatHappens(lane, state, text, moving, now) : whyNothingIsSent(lane, state, text);
  return (span ? sayStep(lane, text, span) + say(text, "colon") : "") + words;
}

function whyNothingIsSent(lane, state, text) {
  const { transfers: t } = lane;
  if (!state.active.length) return whoIsWaitedFor(lane, state, text);
  const stuck = state.active.find(({ i }) => state.time < t.send_end_s[i]);
  if (stuck) return whatIsCut(lane, state, text, stuck);
  const next = Math.min(...state.active.map(({ i }) => t.receive_end_s[i]));
  return say(text, state.receiving.some((load) => load > 0) ? "arriving" : "in_flight", { time: formatTime(next) });
}

/** Whoever sends next: until then the others have nothing to do, and it has something else. */
function whoIsWaitedFor({ transfers: t, n, count }, state, text) {
  const rows = Array.from({ length: count }, (_, i) => i).filter((i) => t.send_start_s[i] > state.time);
  if (!rows.length) return say(text, "nothing");
  const next = rows.reduce((least, i) => Math.min(least, t.send_start_s[i]), Infinity);
  const first = waitedFor(rows.filter((i) => t.send_start_s[i] <= next * (1 + 1e-9)).map((i) => [t.src[i], t.dst[i]]));
  const values = { time: formatTime(next), who: first.length === 1
    ? say(text, "gpu_number", { rank: first[0] }) : listRanks(first, text) };
  return say(text, first.length < n ? "waits_for" : "waits", values);
}

/** For whom messages wait that begin together: who is at an end of each of them, else who sends. */
function waitedFor(ends) {
  const shared = ends[0].filter((rank) => ends.every((pair) => pair.includes(rank)));
  return shared.length === 1 ? shared : [...new Set(ends.map(([src]) => src))];
}

/** What on the way of a message that has stopped carries nothing, and until when. */
function whatIsCut({ net }, state, text, { i }) {
  const link = net.ways[i].find((number) => state.capacity[number] === 0);
  const back = net.changes.find(([time, number, rate]) => number === link && time > state.time && rate !== 0);
  if (!back) return say(text, "stalled");
  const time = formatTime(back[0]);
  if (link < net.ports) return say(text, "stands_still", { rank: link % net.n, time });
  const [src, dst] = net.pairs.get(link)?.split(">") ?? [];
  return src ? say(text, "link_is_cut", { src, dst, time })
    : say(text, "part_is_cut", { link: net.names[link - net.ports - 1], time });
}

function whatHappens(lane, state, text, moving, { i, out }) {
  const { transfers: t, n } = lane;
  const word = t.op[i] === ADD ? "add" : "copy";
  const what = lane.chunks > 1 ? say(text, "chunk", { chunk: t.chunk[i] }) : say(text, "buffer");
  const values = { src: t.src[i], dst: t.dst[i], what, have: t.contributions[i], n };
  const even = moving.every((other) => Math.abs(other.out - out) <= 1e-6 * out);
  const sources = new Set(moving.map((m) => t.src[m.i]));
  const targets = new Set(moving.map((m) => t.dst[m.i]));
  if (lane.chunks > 1 && sources.size === targets.size) {
    Object.assign(values, { busy: sources.size, carries: t.carries[i] });
    const who = values.carries > 1 ? "many" : moving.length > sources.size ? "spread"
      : sources.size < n ? "some" : "each";
    return say(text, `${who}_${word}`, values) + inNumbers(lane, text, i);
  }
  if (moving.length === 1) {
    const idle = n > 2 ? say(text, n === 3 ? "idle_one" : "idle", { idle: n - 2 }) : "";
    return say(text, `single_${word}`, values) + idle;
  }
  if (sources.size > 1 && targets.size > 1) {
    return say(text, "at_once", { count: moving.length }) + say(text, `single_${word}`, values);
  }
  if (targets.size === 1) {
    values.share = percent(text, out / state.capacity[lane.net.ways[i][1]]);
    const full = even && state.receiving[t.dst[i]] >= FULL ? say(text, "port_full_in", values) : "";
    return say(text, "gather", { ...values, srcs: listRanks(sources, text) }) + full;
  }
  values.share = percent(text, out / state.capacity[lane.net.ways[i][0]]);
  const full = even && state.sending[t.src[i]] >= FULL ? say(text, "port_full_out", values) : "";
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

/** `GPUs 1–3`, or `GPUs 1, 4, 6` when they are not consecutive. */
export function listRanks(ranks, text) {
  const sorted = [...ranks].sort((a, b) => a - b);
  const run = sorted.length > 2 && sorted[sorted.length - 1] - sorted[0] === sorted.length - 1;
  const list = run ? `${sorted[0]}–${sorted[sorted.length - 1]}` : sorted.join(", ");
  return say(text, "gpus", { list });
}

/** A phrase of the catalogue with its {placeholders} filled in, spaced as views/text.py does. */
export function say(text, key, values = {}) {
  const filled = text[key].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  return filled.replace(/([\u4e00-\u9fff])(?=[A-Za-z0-9])|([A-Za-z0-9])(?=[\u4e00-\u9fff])/g, "$1$2 ");
}

const RATE_UNITS = [["PB/s", 1e15], ["TB/s", 1e12], ["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3], ["B/s", 1]];
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
  return fourDigits(TIME_UNITS, seconds);
}

/** The same for a rate, like units.format_rate. */
export const formatRate = (bytes_per_s) => fourDigits(RATE_UNITS, bytes_per_s);

function fourDigits(units, value) {
  const [name, factor] = unitFor(units, value);
  return `${digits(value / factor)} ${name}`;
}

/** Four digits, or all before the point, as units.py writes them: a half goes to the even digit,
 *  and what is very small has an exponent of two digits. */
function digits(number) {
  if (number >= 9999.5) return String(toEven(number, Math.floor(Math.log10(number)) + 1));
  const four = toEven(number, 4);
  if (four >= 1e-4) return String(four);
  return four.toExponential().replace(/e-(\d)$/, "e-0$1");
}

/** The number with so many digits; where it is exactly between two such numbers, the even one. */
function toEven(number, count) {
  const [mantissa, power] = number.toExponential(60).split("e");
  const [kept, rest] = [mantissa.slice(0, count + 1), mantissa.slice(count + 1)];
  const between = /^50*$/.test(rest) && Number(kept.at(-1)) % 2 === 0;
  return between ? Number(`${kept}e${power}`) : Number(number.toPrecision(count));
}

const percent = (text, share) => say(text, "percent", { value: Math.round(share * 100 + 1e-6) });

