// The player's pure functions, on lanes small enough to check by head. test_player_core.py puts
// the player beside this file and runs `node --test`.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { arrivalsIn, axisTicks, captionAt, cellsAt, countWhile, eventFrom, eventTimes, formatRate,
  formatTime, hotPorts, layout, listNumbers, listRanks, momentRows, movedAt, phaseStart, prepareLane, say,
  sayPort, sayStep, sizes, stateAt, steadyFormat, steppedTime, unpack, waitsOf } from "./player.mjs";

/** A lane of messages [step, src, dst, chunk, op, nbytes, start, end, latency]; ports of 100 B/s. */
function laneOf(n, messages, more = {}) {
  const column = (k) => messages.map((message) => message[k]);
  const later = (k) => messages.map((message) => message[k] + message[8]);
  return prepareLane({ name: "test", n, chunks: n, steps: Math.max(-1, ...column(0)) + 1, blocks: null,
    time_s: Math.max(0, ...later(7)), send_rate: new Array(n).fill(100), receive_rate: new Array(n).fill(100),
    transfers: { step: column(0), src: column(1), dst: column(2), chunk: column(3), op: column(4),
      nbytes: column(5), carries: messages.map(() => 1), contributions: messages.map(() => 2),
      send_start_s: column(6), send_end_s: column(7), receive_start_s: later(6), receive_end_s: later(7) },
    pieces: null, phases: [], marks: [], cells: null, ...more });
}

// Two GPUs swap a chunk of 100 B each way in one second, then again; nothing waits.
const SWAPS = laneOf(2, [[0, 0, 1, 0, 1, 100, 0, 1, 0], [0, 1, 0, 1, 1, 100, 0, 1, 0],
  [1, 0, 1, 1, 0, 100, 1, 2, 0], [1, 1, 0, 0, 0, 100, 1, 2, 0]]);
// One message that leaves in one second and arrives half a second later.
const LATE = laneOf(3, [[0, 0, 1, 0, 1, 100, 0, 1, 0.5], [1, 1, 2, 0, 1, 50, 1.5, 2, 0.5]]);
const EMPTY = laneOf(1, []);
const TEXT = { step: "step {step} of {steps}", step_range: "steps {first}–{last} of {steps}", colon: ": ",
  done: "done {time}", nothing: "nothing", stalled: "stalled", arriving: "arriving", in_flight: "in flight until {time}",
  waits_for: "all wait for {who} until {time}", waits: "nothing until {time}", gpu_number: "GPU {rank}",
  stands_still: "GPU {rank} stands until {time}", link_is_cut: "{src}>{dst} cut until {time}",
  part_is_cut: "{link} cut until {time}", in: "in", out: "out", port_both: "port", cut: "cut",
  chunk: "chunk {chunk}", buffer: "all", percent: "{value} %", gpus: "GPUs {list}", idle_one: " 1 waits",
  idle: " {idle} wait", single_add: "{src}>{dst} {what} adds {have}/{n}", single_copy: "{src}>{dst} sum",
  gather: "{srcs} to {dst}", scatter: "{src} to {dsts}", port_full_in: " in {share}", port_full_out: " out {share}",
  some_add: "{busy} of {n}, {src}>{dst} {what}", each_add: "each, {src}>{dst} {what}",
  some_copy: "{busy} of {n} copy", each_copy: "each copies, {src}>{dst} {what}",
  many_add: "{busy} of {n}, {src}>{dst} {carries} chunks", many_copy: "{carries} copied" };

test("packed columns", () => {
  assert.deepEqual(unpack([3, 1]), [3, 1]);
  assert.deepEqual(unpack({ of: [0.5, 2], at: [1, 0, 1] }), [2, 0.5, 2]);
  assert.deepEqual(unpack({ of: [7, 8], runs: [2, 1] }), [7, 7, 8]);
  assert.deepEqual(unpack([]), []);
});

test("bytes moved through pieces of constant rate, and through none", () => {
  const pieces = [[1, 2, 10], [2, 4, 40]];
  assert.deepEqual([0, 1, 1.5, 2, 3, 4, 9].map((t) => movedAt(pieces, t)), [0, 0, 5, 10, 30, 50, 50]);
  assert.deepEqual([0.9, 1, 1.1].map((t) => movedAt([[1, 1, 8]], t)), [0, 8, 8]); // takes no time
  assert.equal(movedAt([], 1), 0);
});

test("state before, at, between and after events", () => {
  assert.deepEqual(stateAt(SWAPS, 0).sent, [0, 0]);
  const half = stateAt(SWAPS, 0.5);
  assert.deepEqual([half.sent, half.received], [[50, 50], [50, 50]]);
  assert.deepEqual([half.sending, half.receiving, half.inUse], [[1, 1], [1, 1], 1]);
  assert.deepEqual(half.active.map(({ i, load, progress }) => [i, load, progress]), [[0, 1, 0.5], [1, 1, 0.5]]);
  const turn = stateAt(SWAPS, 1); // what ends now has ended, what begins now is under way
  assert.deepEqual([turn.sent, turn.active.map(({ i }) => i), turn.step], [[100, 100], [2, 3], 1]);
  const last = stateAt(SWAPS, 2);
  assert.deepEqual([last.sent, last.active, last.finished, last.inUse], [[200, 200], [], true, 0]);
  assert.deepEqual(stateAt(SWAPS, 99).received, [200, 200]);
  assert.equal(stateAt(SWAPS, 2 - 1e-9).finished, false);
});

test("the index over steps changes no state: it equals a walk over all transfers", () => {
  const rows = [];
  for (let i = 0; i < 40; i++) { // steps overlap, and one rank runs ahead
    const [step, start] = [i >> 1, (i * 37) % 23 / 10 + (i >> 1) * 0.8];
    rows.push([step, i % 4, (i + 1) % 4, 0, 1, 10 + i, start, start + (i % 3), i % 5 ? 0.3 : 0]);
  }
  const lane = laneOf(4, rows);
  const { transfers: t } = lane;
  for (let time = -0.5; time < lane.time_s + 1; time += 0.0837) {
    const sent = [0, 0, 0, 0];
    const received = [0, 0, 0, 0];
    const active = [];
    for (let i = 0; i < lane.count; i++) {
      sent[t.src[i]] += movedAt(lane.send[i], time);
      received[t.dst[i]] += movedAt(lane.receive[i], time);
      if (t.send_start_s[i] <= time && time < t.receive_end_s[i]) active.push(i);
    }
    const state = stateAt(lane, time);
    const near = (a, b) => a.forEach((x, r) => assert.ok(Math.abs(x - b[r]) < 1e-9, `${time}: ${a} ${b}`));
    near(state.sent, sent);
    near(state.received, received);
    assert.deepEqual(state.active.map(({ i }) => i), active);
  }
});

test("steps and messages that end early do not end the others", () => {
  const lane = laneOf(3, [[0, 0, 1, 0, 1, 100, 0, 5, 0], [0, 2, 1, 0, 1, 20, 0, 1, 0], [1, 1, 2, 0, 1, 10, 0, 1, 0],
    [2, 1, 2, 0, 1, 10, 0, 1, 0], [3, 1, 2, 0, 1, 10, 0, 1, 0]]);
  const state = stateAt(lane, 1);
  assert.deepEqual([state.sent, state.received], [[20, 30, 20], [0, 40, 30]]);
  assert.deepEqual(state.active.map(({ i }) => i), [0]);
});

test("loads are parts of each port, and of the slower one of a link", () => {
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 40, 0, 1, 0]], { send_rate: [80, 10], receive_rate: [10, 40] });
  const { sending, receiving, active: [{ load, out }] } = stateAt(lane, 0.5);
  assert.deepEqual([sending[0], receiving[1], load, out], [0.5, 1, 1, 40]);
});

test("a message in flight occupies no port", () => {
  const { sent, received, sending, receiving, active } = stateAt(LATE, 0.25);
  assert.deepEqual([sent, received], [[25, 0, 0], [0, 0, 0]]);
  assert.deepEqual([sending, receiving], [[1, 0, 0], [0, 0, 0]]);
  assert.equal(active[0].progress, 0.25 / 1.5);
  const flying = stateAt(LATE, 1.25);
  assert.deepEqual([flying.sending[0], flying.receiving[1], flying.active[0].load], [0, 1, 0]);
  assert.equal(captionAt(LATE, flying, TEXT), "step 1 of 2: arriving");
  const far = laneOf(2, [[0, 0, 1, 0, 1, 100, 0, 1, 5]]);
  assert.equal(captionAt(far, stateAt(far, 3), TEXT), "step 1 of 1: in flight until 6 s");
  assert.deepEqual(momentRows(far, stateAt(far, 3)),
    [{ first: 0, last: 0, src: 0, dst: 1, chunk: 0, carries: 1, rate: 0, share: 0, arrives_s: 6 }]);
});

test("transfers without bytes or time", () => {
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 30, 1, 1, 0]]);
  assert.deepEqual(stateAt(lane, 0.5).sent, [0, 0]);
  assert.deepEqual(stateAt(lane, 1).sent, [0, 30]);
  assert.deepEqual(stateAt(lane, 1).active, []);
  assert.deepEqual(eventTimes([lane]), [0, 1]);
});

test("rates that change, and a link that stands still", () => {
  const pieces = { transfer: [0, 0, 0], sending: [1, 1, 1], start_s: [0, 1, 3], end_s: [1, 3, 4],
    nbytes: [50, 0, 50] };
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 100, 0, 4, 0]], { pieces });
  assert.deepEqual([0.5, 1, 2, 3.5].map((t) => stateAt(lane, t).sent[0]), [25, 50, 50, 75]);
  assert.deepEqual([0.5, 2, 3].map((t) => stateAt(lane, t).active[0].out), [50, 0, 50]);
  assert.equal(captionAt(lane, stateAt(lane, 2), TEXT), "step 1 of 1: stalled");
  assert.equal(stateAt(lane, 2).received[1], 50); // the receiving side has a rate of its own
});

test("a clock that moves in steps starts from where it stands", () => {
  const at = (from, now) => steppedTime([0, 0.64, 1.28], from, now);
  assert.deepEqual([at(0.96, 0.96), at(0.96, 1.2), at(0.96, 1.3), at(0, 0.3)], [0.96, 0.96, 1.28, 0]);
});

test("a lane of one GPU without messages", () => {
  const state = stateAt(EMPTY, 0);
  assert.deepEqual([state.sent, state.active, state.finished, state.step, state.inUse], [[0], [], true, -1, 0]);
  assert.equal(captionAt(EMPTY, state, TEXT), "done 0 s");
  assert.deepEqual(eventTimes([EMPTY]), [0]);
  assert.deepEqual(eventTimes([EMPTY], 0), []);
  assert.deepEqual(waitsOf(EMPTY, 0), []);
  assert.deepEqual(layout(1, null), [{ x: 160, y: 124 }]);
});

test("a wait before the first message is no message in flight", () => {
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 100, 2, 3, 0]]);
  assert.equal(captionAt(lane, stateAt(lane, 1), TEXT), "all wait for GPU 0 until 2 s");
  const both = laneOf(2, [[0, 0, 1, 0, 1, 100, 2, 3, 0], [0, 1, 0, 1, 1, 100, 2, 3, 0]]);
  assert.equal(captionAt(both, stateAt(both, 1), TEXT), "nothing until 2 s");
  const late = laneOf(3, [[0, 0, 1, 0, 1, 100, 2, 3, 0], [0, 1, 2, 1, 1, 100, 2, 3, 0]]);
  assert.equal(captionAt(late, stateAt(late, 1), TEXT), "all wait for GPU 1 until 2 s"); // at both ends
  const over = laneOf(2, [[0, 0, 1, 0, 1, 100, 0, 1, 0]], { time_s: 2 }); // the last sum is being added
  assert.equal(captionAt(over, stateAt(over, 1.5), TEXT), "step 1 of 1: nothing");
});

/** What the network of a lane is beside its ports, as links.py writes it. */
const netOf = (capacity, more) => ({ half_duplex: false, usual: 100, capacity, changes: [], names: [],
  pairs: [], ways: [], ...more });
const PORTS = [100, 100, 100, 100]; // of two GPUs

test("a port that several share is hot, one that is used as it can be is not", () => {
  const fan = laneOf(3, [[0, 1, 0, 0, 1, 50, 0, 1, 0], [0, 2, 0, 0, 1, 50, 0, 1, 0]]);
  assert.deepEqual([...stateAt(fan, 0.5).hot], [3]); // into GPU 0
  assert.deepEqual(hotPorts(fan, stateAt(fan, 0.5)).map((port) => [port.in, port.out]),
    [[true, false], [false, false], [false, false]]);
  assert.equal(sayPort(fan, stateAt(fan, 0.5), TEXT, 0), "in 100 %");
  assert.deepEqual([...stateAt(SWAPS, 0.5).hot], []);
  const first = laneOf(2, [[0, 1, 0, 0, 1, 100, 0, 1, 0]], { bottleneck: 0 }); // others have not begun
  assert.deepEqual(hotPorts(first, stateAt(first, 0.5)).map((port) => port.in), [true, false]);
});

test("a link that has become slow is full at what it carries, and hot until it is as it was", () => {
  const net = netOf([...PORTS, -1, 10], { changes: [[4, 5, -1]], pairs: [[5, 0, 1]], ways: [[0], [3], [5]] });
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 90, 0, 4.5, 0]], { net, pieces: { transfer: [0, 0, 0, 0],
    sending: [1, 1, 0, 0], start_s: [0, 4, 0, 4], end_s: [4, 4.5, 4, 4.5], nbytes: [40, 50, 40, 50] } });
  const [slow, fast] = [stateAt(lane, 1), stateAt(lane, 4.25)];
  assert.deepEqual([[...slow.hot], slow.active[0].load, slow.sending[0]], [[5], 1, 0.1]);
  assert.deepEqual([[...fast.hot], fast.active[0].load, fast.sending[0]], [[], 1, 1]);
});

test("what is cut says so, and until when", () => {
  const cut = (link, more) => {
    const net = netOf([...PORTS, -1, ...(more.rest ?? [])], { changes: [[1, link, 0], [3, link, 100]], ...more });
    const lane = laneOf(2, [[0, 0, 1, 0, 1, 200, 0, 4, 0]], { net, pieces: { transfer: [0, 0, 0],
      sending: [1, 1, 1], start_s: [0, 1, 3], end_s: [1, 3, 4], nbytes: [100, 0, 100] } });
    const state = stateAt(lane, 2);
    assert.deepEqual([...state.hot], [link]);
    return captionAt(lane, state, TEXT);
  };
  assert.equal(cut(3, { ways: [[0], [3]] }), "step 1 of 1: GPU 1 stands until 3 s");
  assert.equal(cut(5, { rest: [-1], pairs: [[5, 0, 1]], ways: [[0], [3], [5]] }), "step 1 of 1: 0>1 cut until 3 s");
  assert.equal(cut(5, { rest: [100], names: ["node0.up"], ways: [[0], [3], [5]] }), "step 1 of 1: node0.up cut until 3 s");
});

test("a port for both ways is one link", () => {
  const net = netOf([100, 100, -1], { half_duplex: true, ways: [[0, 1], [1, 0]] });
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 50, 0, 1, 0], [0, 1, 0, 1, 1, 50, 0, 1, 0]], { net });
  const state = stateAt(lane, 0.5);
  assert.deepEqual([state.sending, state.receiving, [...state.hot]], [[1, 1], [1, 1], []]);
  assert.equal(sayPort(lane, state, TEXT, 0), "port 100 %");
});

test("events, each once, of all and of one GPU", () => {
  assert.deepEqual(eventTimes([SWAPS, LATE]), [0, 1, 1.5, 2, 2.5]);
  assert.deepEqual(eventTimes([LATE], 0), [0]);
  assert.deepEqual(eventTimes([LATE], 1), [1.5]); // it has received, and sends on, at once
  assert.deepEqual(eventTimes([LATE], 2), [2.5]);
  const close = laneOf(2, [[0, 0, 1, 0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 1, 1, 1 - 1e-12, 2, 0]]);
  assert.deepEqual(eventTimes([close]), [0, 1, 2]); // the last digit does not make two events
});

test("the next event and the previous one", () => {
  const times = [0, 1, 1.5, 4];
  const from = (now, way) => eventFrom(times, now, way, 1e-9);
  assert.deepEqual([from(0, 1), from(1, 1), from(1.2, 1), from(4, 1)], [1, 1.5, 1.5, undefined]);
  assert.deepEqual([from(0, -1), from(1, -1), from(1.2, -1), from(9, -1)], [undefined, 0, 1, 4]);
  for (const now of [1 - 1e-10, 1 + 1e-10]) assert.deepEqual([from(now, 1), from(now, -1)], [1.5, 0]);
  assert.equal(eventFrom([], 1, 1, 0), undefined);
  assert.deepEqual([0, 1, 2, 3].map((k) => countWhile([1, 2, 2], (x) => x <= k)), [0, 1, 3, 3]);
});

test("a mark that stands for several steps says so", () => {
  const lane = laneOf(2, [[0, 0, 1, 0, 1, 100, 0, 1, 0], [1, 1, 0, 0, 1, 100, 1, 2, 0]],
    { steps: 5, blocks: [0, 2, 5] });
  assert.deepEqual(lane.spans.map(({ first, last }) => [first, last]), [[0, 1], [2, 4]]);
  assert.equal(sayStep(lane, TEXT, lane.spans[1]), "steps 3–5 of 5");
  lane.transfers.carries = [2, 3];
  assert.equal(captionAt(lane, stateAt(lane, 1.5), TEXT), "steps 3–5 of 5: 1 of 2, 1>0 3 chunks");
});

test("captions: alone, gathering, scattering, everyone", () => {
  const say1 = (lane, time, followed) => captionAt(lane, stateAt(lane, time), TEXT, followed);
  assert.equal(say1(SWAPS, 0.5), "step 1 of 2: each, 0>1 chunk 0");
  assert.equal(say1(SWAPS, 0.5, 0), "step 1 of 2: each, 1>0 chunk 1");
  assert.equal(say1(SWAPS, 1.5, 7), "step 2 of 2: each copies, 0>1 chunk 1");
  assert.equal(say1(LATE, 0.5), "step 1 of 2: 1 of 3, 0>1 chunk 0");
  const whole = (messages) => laneOf(3, messages, { chunks: 1 });
  const gather = whole([[0, 1, 0, 0, 1, 50, 0, 1, 0], [0, 2, 0, 0, 1, 50, 0, 1, 0]]);
  assert.equal(say1(gather, 0.5), "step 1 of 1: GPUs 1, 2 to 0 in 50 %");
  const scatter = whole([[0, 0, 1, 0, 0, 25, 0, 1, 0], [0, 0, 2, 0, 0, 25, 0, 1, 0]]);
  assert.equal(say1(scatter, 0.5), "step 1 of 1: 0 to GPUs 1, 2"); // half of the port is not full
  const single = whole([[0, 1, 0, 0, 1, 100, 0, 1, 0]]);
  assert.equal(say1(single, 0.5), "step 1 of 1: 1>0 all adds 2/3 1 waits");
});

test("waits, arrivals and cells", () => {
  assert.deepEqual(waitsOf(LATE, 0), [[1, 2.5]]);
  assert.deepEqual(waitsOf(LATE, 2), [[0, 2]]);
  assert.deepEqual(waitsOf(SWAPS, 0), []);
  assert.deepEqual(arrivalsIn(SWAPS, 1, 1), [2]);
  const lane = { ...SWAPS, cells: { start: [[[1], [2]], [[3], []]], sent: [[1], [0], [9], [9]],
    values: [[4], [2], [9], [9]], who: [[1, 0], [0], [1, 0], [1, 0]] } };
  const at = (time) => cellsAt(lane, stateAt(lane, time), time);
  assert.deepEqual(at(0.5)[1][0].values, [3]);
  assert.equal(at(0.5)[1][0].arriving.i, 0);
  assert.equal(at(0.5)[0][0].leaving.i, 0);
  assert.deepEqual(at(1)[1][0], { values: [4], who: [1, 0], arriving: null, leaving: at(1)[1][0].leaving });
  assert.deepEqual(at(0)[1][1].who, []); // an empty chunk is nobody's
});

test("phases begin with their first message, also where steps are empty", () => {
  const lane = laneOf(2, [[1, 0, 1, 0, 1, 1, 0.5, 1, 0], [2, 1, 0, 0, 0, 1, 1, 2, 0]]);
  assert.equal(phaseStart(lane, { first: 0, last: 1 }), 0.5);
  assert.equal(phaseStart(lane, { first: 2, last: 2 }), 1);
  assert.equal(phaseStart(lane, { first: 0, last: 0 }), 0);
});

test("no two GPUs are drawn over each other, and all are in the picture", () => {
  for (let n = 2; n <= 64; n++) {
    for (const hub of [null, 0, n - 1]) {
      const places = layout(n, hub);
      const { radius, gap, ring, token } = sizes(n, places);
      const rim = radius + gap + ring / 2;
      const label = hub === null && radius <= 6.5 ? 12 : 0; // then its number stands outside
      const middle = places[hub];
      assert.equal(places.length, n);
      assert.ok(radius >= 2 && token >= 2, `${n}: ${radius}`);
      places.forEach((a, i) => {
        assert.ok(a.x - rim >= 0 && a.x + rim <= 320 && a.y - rim - label >= 0 && a.y + rim + label <= 248, `${n} ${a.x} ${a.y}`);
        places.slice(0, i).forEach((b) => {
          const between = a === middle || b === middle ? 17 + gap + ring / 2 + rim : 2 * rim;
          assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > between * 0.999, `${n} ${hub}`);
        });
      });
    }
  }
  assert.deepEqual(layout(3, 0)[0].x, 160); // the hub stands in the middle
});

test("ticks of an axis", () => {
  assert.deepEqual(axisTicks(10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(axisTicks(2.1, 4), [0, 1, 2]);
  assert.equal(axisTicks(3e-7, 6).length, 7);
});

test("formats are those of Python, at their borders, too", () => {
  const { times, rates } = JSON.parse(readFileSync(new URL("./formats.json", import.meta.url), "utf8"));
  assert.deepEqual(times.map(([seconds]) => formatTime(seconds)), times.map(([, words]) => words));
  assert.deepEqual(rates.map(([rate]) => formatRate(rate)), rates.map(([, words]) => words));
});

test("formats", () => {
  assert.deepEqual([0, 2.0133, 0.50331648, 5e-6, 3e-10, 0.99996].map(formatTime),
    ["0 s", "2.013 s", "503.3 ms", "5 µs", "0.3 ns", "1 s"]);
  assert.deepEqual([25e6, 3.125e9, 999.96, 12].map(formatRate), ["25 MB/s", "3.125 GB/s", "1 kB/s", "12 B/s"]);
  const units = [["MiB", 2 ** 20], ["B", 1]];
  const { unit, number } = steadyFormat(units, 24 * 2 ** 20, 4);
  assert.deepEqual([unit, number(2 ** 20), number(0)], ["MiB", "1.00", "0.00"]);
  assert.equal(steadyFormat(units, 12, 4).number(7), "7");
  assert.deepEqual([[], [1, 2, 3, 4], [1, 2, 3, 4, 5]].map(listNumbers), ["[]", "[1, 2, 3, 4]", "[1, 2, 3, …]"]);
  assert.deepEqual([[3, 1, 2], [1, 2], [5, 1, 2], [0]].map((r) => listRanks(r, TEXT)),
    ["GPUs 1–3", "GPUs 1, 2", "GPUs 1, 2, 5", "GPUs 0"]);
  assert.equal(say({ a: "把{x}发给 {y}" }, "a", { x: "chunk 2", y: 3 }), "把 chunk 2 发给 3");
});
