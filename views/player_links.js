
// ------------------------------------------------ the links of a lane, and which of them are full
//
// A message goes as fast as the fullest link on its way lets it, its bottleneck: full, and nobody
// there gets more. Where others on its way could carry more, that link is hot, if several share it
// or it is narrower than most ports. links.py has the same rules.

const FULL = 0.999; // a link is full from here on: rates are sums of floats

/** The network of a lane: ports by their number, senders first, and what else there is. Ways hold
 *  for each transfer the links on it, the sender's port first and the receiver's second. */
function netOf({ n, send_rate, receive_rate, net, transfers: t, count }) {
  const rows = Array.from({ length: count }, (_, i) => i);
  if (!net) {
    const capacity = [...send_rate, ...receive_rate];
    return { n, isPlain: true, ports: 2 * n, receiver: n, capacity, changes: [], names: [], pairs: new Map(), pairOf: new Map(), own: [0, 1],
      usual: median(capacity), ways: rows.map((i) => [t.src[i], n + t.dst[i]]) };
  }
  const endless = (rate) => (rate < 0 ? Infinity : rate);
  const pairs = new Map(net.pairs.map(([link, src, dst]) => [link, `${src}>${dst}`]));
  const keys = rows.map((i) => t.src[i] * n + t.dst[i]);
  const place = new Map([...new Set(keys)].sort((a, b) => a - b).map((key, at) => [key, at]));
  const columns = net.ways.map(unpack);
  const receiver = net.half_duplex ? 0 : n;
  const pairOf = new Map(net.pairs.map(([link, src, dst]) => [`${src}>${dst}`, link]));
  return { n, isPlain: false, receiver, ports: receiver + n, usual: net.usual, names: net.names, pairs, pairOf,
    capacity: unpack(net.capacity).map(endless),
    changes: net.changes.map(([time, link, rate]) => [time, link, endless(rate)]),
    own: pairs.size ? [0, 1, columns.length - 1] : [0, 1],
    ways: keys.map((key) => columns.map((column) => column[place.get(key)])) };
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Bytes per second of every link at `time`. */
function capacityAt(net, time) {
  if (!net.changes.length) return net.capacity;
  const capacity = [...net.capacity];
  for (const [from, link, rate] of net.changes) if (from <= time) capacity[link] = rate;
  return capacity;
}

/** Capacity and load of every link, and the hot ones; `moving` are transfers with what they bring
 *  `out` of a port and `into` one per second. A hot link without capacity is cut. Each transfer
 *  gets its `load`, of the link between its two ends. */
function loadsAt(net, time, moving) {
  const capacity = capacityAt(net, time);
  const [load, most, users] = [0, 0, 0].map((zero) => new Array(capacity.length).fill(zero));
  const rate = ({ out, into }, column) => (column === 1 ? into : out);
  const passes = (one, link, column) => rate(one, column) > 0 || capacity[link] === 0;
  for (const one of moving) {
    net.ways[one.i].forEach((link, column) => {
      if (capacity[link] > 0) load[link] += rate(one, column) / capacity[link];
      most[link] = Math.max(most[link], rate(one, column));
      users[link] += passes(one, link, column);
    });
    const own = Math.min(...net.own.map((column) => capacity[net.ways[one.i][column]]));
    one.load = own > 0 ? one.out / own : 0;
  }
  const found = new Set();
  for (const one of moving) {
    const way = net.ways[one.i];
    const holds = way.map((link, column) => passes(one, link, column)
      && (load[link] >= FULL || capacity[link] === 0) && rate(one, column) >= FULL * most[link]);
    if (way.every((link, column) => holds[column] || capacity[link] === Infinity)) continue;
    way.forEach((link, column) => {
      const special = users[link] > 1 || capacity[link] < FULL * net.usual;
      if (holds[column] && special) found.add(link);
    });
  }
  return { capacity, load, hot: fewOf(net, found) };
}

/** Where most ports of a side are hot, none of them is special. */
function fewOf({ n, receiver, ports }, found) {
  const sides = [[0, n], [receiver || ports, ports]];
  const many = sides.filter(([from, to]) => 2 * [...found].filter((link) => from <= link && link < to).length > n);
  return new Set([...found].filter((link) => !many.some(([from, to]) => from <= link && link < to)));
}
