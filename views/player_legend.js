// -------------------------------------------------------------- what colours and marks stand for

function drawLegend(lanes, text, stepwise) {
  const sample = (key, ...shapes) => make("span", {},
    make("s:svg", { viewBox: "0 0 22 14", class: "timeline", "aria-hidden": "true" }, ...shapes),
    say(text, key));
  const bar = (kind) => make("s:rect", { x: 0, y: 1, width: 22, height: 12, class: kind });
  const thin = (kind) => make("s:rect", { x: 0, y: 2, width: 22, height: THIN, class: kind });
  const diamond = (kind) => make("s:g", { class: `mark ${kind}` },
    make("s:path", { d: "M 5 7 l 6 -6 l 6 6 l -6 6 z" }));
  const has = (source) => lanes.some((lane) => lane.marks.some((mark) => mark.source === source));
  return make("div", { class: "legend" },
    sample("legend_add", bar("add")), sample("legend_copy", bar("copy")),
    ...(stepwise ? [sample("legend_send", thin("out add")), sample("legend_receive", thin("in add")),
      sample("legend_wait", make("s:line", { class: "wait", x1: 0, x2: 22, y1: 7, y2: 7 }))] : []),
    ...(lanes.some((lane) => lane.bottleneck !== null || lane.net.isPlain === false) ? [sample("legend_hot",
      make("s:path", { d: "M 13 12 A 5 5 0 0 1 13 2", class: "gauge hot" }))] : []),
    sample("legend_ports", make("s:path", { d: "M 11 13 A 6 6 0 0 1 11 1", class: "gauge" }),
      make("s:path", { d: "M 11 13 A 6 6 0 0 0 11 1", class: "gauge-track" })),
    ...(has("replayed") ? [sample("legend_replayed", diamond("replayed"))] : []),
    ...(has("vendor") ? [sample("legend_vendor", diamond("vendor"))] : []),
    ...(lanes.some((lane) => lane.ghost) ? [sample("legend_ghost", bar("ghost"))] : []),
    ...lanes.filter((lane) => lane.blocks).map((lane) => make("span", { class: "note" },
      say(text, "joined", { title: lane.title, steps: stepsPerMark(lane) }))));
}

const stepsPerMark = ({ spans }) => Math.max(...spans.map(({ first, last }) => last - first + 1));

