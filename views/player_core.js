// The player: lanes of traces on one clock, drawn in the browser. No dependency, no build step.
//
// player.py joins the files into one module, in its order. player_core.js, player_links.js and
// player_words.js are pure: what is true of a lane at time t, which of its links are full, and how
// that is said. The others draw: player_lanes.js the networks, player_nodes.js the nodes and what
// stands beside full links, player_counters.js the bytes of every GPU, player_timeline.js the time axis,
// player_steps.js the chunk table and the time of every GPU, player_moment.js the moment as a table,
// player_keys.js the keys and their table; player.js is the clock with its controls, and
// player_host.js puts it into a page.
// What a lane holds is written in player.py; all times are simulated seconds, sizes are bytes.

// ---------------------------------------------------------------- core: lane and time -> state

const ADD = 1;
const MANY = 8; // GPUs in a lane from which on things are drawn smaller
const CROWD = 16; // from which on they are points, and their bytes a profile

/** The inverse of detail.py's `packed`: a list, distinct values with places, or values in runs. */
export function unpack(column) {
  if (Array.isArray(column)) return column;
  if (column.at) return column.at.map((place) => column.of[place]);
  return column.of.flatMap((value, i) => new Array(column.runs[i]).fill(value));
}

const unpackAll = (columns) =>
  Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, unpack(column)]));

/** A lane with its columns turned into what the functions below look up. */
export function prepareLane(packed) {
  const lane = { ...packed, transfers: unpackAll(packed.transfers) };
  lane.send_rate = unpack(packed.send_rate);
  lane.receive_rate = unpack(packed.receive_rate);
  const t = lane.transfers;
  lane.count = t.step.length;
  const whole = (start, end) => t.step.map((_, i) => [[start[i], end[i], t.nbytes[i]]]);
  lane.send = whole(t.send_start_s, t.send_end_s);
  lane.receive = whole(t.receive_start_s, t.receive_end_s);
  if (lane.pieces) splitAtPieces(lane, unpackAll(lane.pieces));
  lane.net = netOf(lane);
  lane.spans = spansOf(lane);
  lane.moved = movedBefore(lane);
  return lane;
}

/** Where a transfer's rate changes, its pieces of constant rate take the place of the whole. */
function splitAtPieces(lane, pieces) {
  const split = new Set();
  for (let row = 0; row < pieces.transfer.length; row++) {
    const side = pieces.sending[row] ? lane.send : lane.receive;
    const i = pieces.transfer[row];
    const key = `${i},${pieces.sending[row]}`;
    if (!split.has(key)) side[i] = [];
    split.add(key);
    side[i].push([pieces.start_s[row], pieces.end_s[row], pieces.nbytes[row]]);
  }
}

/** When each step begins and ends, and its rows; in a long run one mark, and so one entry here,
 *  may stand for several steps, `first` to `last`. */
function spansOf({ transfers: t, count, steps, blocks }) {
  const bounds = blocks ?? Array.from({ length: steps + 1 }, (_, step) => step);
  const spans = bounds.slice(0, -1).map((first, b) => ({ first, last: bounds[b + 1] - 1,
    start: Infinity, end: -Infinity, from: count, to: 0 }));
  for (let i = 0; i < count; i++) { // in order of steps
    const span = spans[t.step[i]];
    span.start = Math.min(span.start, t.send_start_s[i]);
    span.end = Math.max(span.end, t.receive_end_s[i]);
    span.op = t.op[i];
    span.from = Math.min(span.from, i);
    span.to = i + 1;
  }
  return spans;
}

/** An index, so that a frame need not walk over the whole run: at entry k, when all before row
 *  `from` is over, what had been moved by then, and when the first of what follows begins. */
function movedBefore({ transfers: t, n, spans }) {
  const [sent, received] = [new Array(n).fill(0), new Array(n).fill(0)];
  const index = [];
  let over = -Infinity;
  for (const { from, to, end } of spans.filter((span) => span.to)) {
    index.push({ over, from, sent: [...sent], received: [...received], begins: Infinity });
    for (let i = from; i < to; i++) {
      sent[t.src[i]] += t.nbytes[i];
      received[t.dst[i]] += t.nbytes[i];
    }
    over = Math.max(over, end);
  }
  index.push({ over, from: t.step.length, sent, received, begins: Infinity });
  const starts = spans.filter((span) => span.to).map((span) => span.start);
  for (let k = starts.length - 1; k >= 0; k--) index[k].begins = Math.min(starts[k], index[k + 1].begins);
  return index;
}

/** How many of the sorted `items` come first with `test` true: a binary search. */
export function countWhile(items, test) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (test(items[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
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
  const { from, sent, received } = lane.moved[countWhile(lane.moved, (entry) => entry.over <= time) - 1];
  const { from: to } = lane.moved[countWhile(lane.moved, (entry) => entry.begins <= time)];
  const state = { time, sent: [...sent], received: [...received], active: [] };
  for (let i = from; i < to; i++) {
    const [src, dst] = [t.src[i], t.dst[i]];
    state.sent[src] += movedAt(lane.send[i], time);
    state.received[dst] += movedAt(lane.receive[i], time);
    const [start, arrival] = [t.send_start_s[i], t.receive_end_s[i]];
    if (!(start <= time && time < arrival)) continue;
    state.active.push({ i, out: rateAt(lane.send[i], time), into: rateAt(lane.receive[i], time),
      progress: (time - start) / (arrival - start) });
  }
  Object.assign(state, loadsAt(lane.net, time, state.active));
  state.sending = portLoads(lane, state, 0);
  state.receiving = portLoads(lane, state, 1);
  const started = lane.spans.filter((step) => step.start <= time).length;
  const running = state.active.map(({ i }) => t.step[i]);
  state.step = running.length ? Math.min(...running) : started - 1;
  state.finished = time >= lane.time_s;
  state.inUse = [...state.sending, ...state.receiving].reduce((a, b) => a + b, 0) / (2 * n);
  return state;
}

/** The load of every GPU's sending (`column` 0) or receiving port; of several ports, such as one
 *  inside its node, the fullest; of a port for both ways, all that it carries. */
function portLoads({ n, net, transfers: t }, { active, load }, column) {
  if (!net.receiver) return load.slice(0, n);
  const loads = new Array(n).fill(0);
  for (const { i } of active) {
    const rank = column ? t.dst[i] : t.src[i];
    loads[rank] = Math.max(loads[rank], load[net.ways[i][column]]);
  }
  return loads;
}

/** What is under way, a row per mark, as the moment's table shows it: the rate is of the sending
 *  port, 0 where all has left, and `share` of the narrowest part between the two GPUs. */
export function momentRows(lane, state) {
  const { transfers: t, spans } = lane;
  return state.active.map(({ i, out, load }) => {
    const { first, last } = spans[t.step[i]];
    return { first, last, src: t.src[i], dst: t.dst[i], chunk: t.chunk[i], carries: t.carries[i],
      rate: out, share: load, arrives_s: t.receive_end_s[i] };
  });
}

/** The moments at which something starts or arrives in any lane, in order, each once; of one GPU
 *  those at which it starts to send or has received. */
export function eventTimes(lanes, rank = null) {
  const times = rank === null ? [0] : [];
  for (const { transfers: t, count } of lanes) {
    for (let i = 0; i < count; i++) {
      if (rank === null || t.src[i] === rank) times.push(t.send_start_s[i]);
      if (rank === null || t.dst[i] === rank) times.push(t.receive_end_s[i]);
    }
  }
  times.sort((a, b) => a - b);
  const nearby = times.at(-1) * 1e-9;
  return times.filter((time, i) => !(times[i + 1] - time <= nearby)); // the last: all has happened
}

/** The next (`direction` 1) or previous (-1) of sorted `times`, or undefined; `nearby` is now. */
export function eventFrom(times, now, direction, nearby) {
  return direction > 0 ? times[countWhile(times, (time) => time <= now + nearby)]
    : times[countWhile(times, (time) => time < now - nearby) - 1];
}

/** The last of the `events` by `now`, of a clock that started at `from`: never earlier than that. */
export function steppedTime(events, from, now) {
  return Math.max(from, events[countWhile(events, (time) => time <= now) - 1] ?? from);
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

/** When a phase, the blocks `first` to `last`, begins: empty steps have no beginning. */
export function phaseStart(lane, { first, last }) {
  const start = Math.min(...lane.spans.slice(first, last + 1).map((span) => span.start));
  return Number.isFinite(start) ? start : 0;
}

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

/** Radius of a GPU, how far from it and how thick its port's ring is, radius of what travels:
 *  the largest that fit between `places`. */
export function sizes(n, places) {
  if (n <= CROWD) return n > MANY ? { radius: 9, gap: 4, ring: 4.5, token: 5 }
    : { radius: 15, gap: 4, ring: 4.5, token: 8 };
  const apart = places.flatMap((a, i) => places.slice(0, i).map((b) => Math.hypot(a.x - b.x, a.y - b.y)));
  const pitch = Math.min(...apart);
  return { radius: Math.min(9, 0.28 * pitch), gap: Math.min(4, 0.14 * pitch),
    ring: Math.min(4.5, 0.13 * pitch), token: Math.min(5, 0.32 * pitch) };
}

