// Draws a board of Grafana with what a Prometheus has answered: {board, from, to, answers}, where
// answers has, by the ID of a panel, what its targets have got. It knows no more of the form of
// boards than those of deploy/monitoring use.
"use strict";

const palette = ["#56a64b", "#e0b400", "#3274d9", "#ff780a", "#e02f44", "#8f3bb8", "#1f9bcf", "#a16a00"];

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className ?? "";
  made.textContent = text ?? "";
  return made;
}

// format writes a value in a unit of Grafana.
function format(value, unit) {
  if (value == null) return "";
  const short = number => Number(number.toPrecision(3)).toString();
  switch (unit) {
    case "percentunit": return short(value * 100) + "%";
    case "s": return value < 0.001 ? short(value * 1e6) + " µs" : value < 1 ? short(value * 1000) + " ms" : short(value) + " s";
    case "ops": return short(value) + " ops/s";
    case "bytes": return short(value / 2 ** 30) + " GiB";
    default: return short(value);
  }
}

// clock writes a time of the day.
function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

// name returns what a series is called.
function name(target, labels) {
  if (target.legendFormat) return target.legendFormat.replace(/{{(\w+)}}/g, (_, label) => labels[label] ?? "");
  return Object.entries(labels).map(([key, value]) => key + "=" + value).join(", ") || "Value";
}

// seriesOf returns all series of a panel: {name, labels, values: [[seconds, number] …]}.
function seriesOf(panel, answers) {
  return answers.flatMap((answer, i) => (answer ?? []).map(({metric, values, value}) => ({
    name: name(panel.targets[i], metric), labels: metric,
    values: (values ?? [value]).map(([at, text]) => [at, Number(text)]).filter(([, number]) => Number.isFinite(number)),
  })));
}

// colour returns that of the last threshold which a value has reached.
function colour({steps}, value) {
  const reached = steps.filter(step => step.value == null || value >= step.value).at(-1);
  return "var(--" + reached.color + ")";
}

const kinds = {
  stat(panel, body, series) {
    const {unit, thresholds} = panel.fieldConfig.defaults;
    const value = series[0].values.at(-1)[1];
    body.textContent = format(value, unit);
    body.style.color = colour(thresholds, value);
  },

  table(panel, body, series) {
    const labels = [...new Set(series.flatMap(({labels}) => Object.keys(labels)))].filter(label => label !== "__name__");
    const shown = element("table");
    const head = shown.createTHead().insertRow();
    for (const label of labels) head.append(element("th", "", label));
    const rows = shown.createTBody();
    for (const one of series) {
      const cells = rows.insertRow();
      for (const label of labels) cells.append(element("td", "", one.labels[label]));
    }
    body.append(shown);
  },

  "state-timeline"(panel, body, series, {from, to, step}) {
    const states = panel.fieldConfig.defaults.mappings[0].options;
    for (const one of series.sort((a, b) => a.name.localeCompare(b.name))) {
      const lane = element("div", "lane");
      const bars = element("div");
      for (const [at, value] of one.values) {
        const bar = element("b");
        bar.style.left = 100 * (at - from) / (to - from) + "%";
        bar.style.width = 100 * step / (to - from) + 0.5 + "%";
        bar.style.background = "var(--" + states[value].color + ")";
        bars.append(bar);
      }
      lane.append(element("span", "", one.name), bars);
      body.append(lane);
    }
  },

  timeseries(panel, body, series, {from, to, step}) {
    const {unit, custom, min, max} = panel.fieldConfig.defaults;
    const stacked = custom?.stacking?.mode === "normal";
    const times = [];
    for (let at = from; at <= to; at += step) times.push(at);
    const columns = series.map(({values}) => {
      const by = new Map(values.map(([at, number]) => [Math.round((at - from) / step), number]));
      return times.map((_, i) => by.get(i) ?? null);
    });
    if (stacked) {
      for (let i = 1; i < columns.length; i++) {
        columns[i] = columns[i].map((value, at) => (value ?? 0) + (columns[i - 1][at] ?? 0));
      }
    }
    const text = getComputedStyle(document.body).color;
    const axis = {stroke: text, font: "11px sans-serif", grid: {stroke: "#80808030", width: 1}, ticks: {show: false}};
    const lines = series.map((one, i) => ({
      label: one.name, stroke: palette[i % palette.length], width: 1.5, points: {show: false},
      fill: stacked ? palette[i % palette.length] + "66" : undefined,
    }));
    const order = [...lines.keys()];
    if (stacked) order.reverse(); // the lowest one is painted last
    new uPlot({
      width: body.clientWidth, height: body.clientHeight, legend: {show: false}, cursor: {show: false},
      axes: [{...axis, size: 26, values: (_, ticks) => ticks.map(clock)}, {...axis, size: 62, values: (_, ticks) => ticks.map(tick => format(tick, unit))}],
      scales: {x: {range: [from, to]}, y: {range: (_, low, high) => [min ?? low, max ?? ((high || 1) * 1.1)]}},
      series: [{}, ...order.map(i => lines[i])],
    }, [times, ...order.map(i => columns[i])], body);
  },
};

function draw(state) {
  document.querySelector("h1").textContent = state.board.title;
  const main = document.querySelector("main");
  main.replaceChildren();
  for (const panel of state.board.panels) {
    const {x, y, w, h} = panel.gridPos;
    const shown = element("section", panel.type === "row" ? "row" : "panel " + panel.type);
    shown.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
    main.append(shown);
    if (panel.type === "row") {
      shown.textContent = panel.title;
      continue;
    }
    const body = element("div", "body");
    const series = seriesOf(panel, state.answers[panel.id]).filter(({values}) => values.length > 0);
    const most = ({values}) => Math.max(...values.map(([, value]) => value));
    if (panel.type === "timeseries") series.sort((a, b) => most(b) - most(a)); // the legend may be cut
    shown.append(element("h2", "", panel.title), body);
    if (panel.type === "timeseries" && series.length > 0) {
      const legend = element("div", "legend");
      series.forEach((one, i) => {
        const entry = element("span");
        const line = element("i");
        line.style.background = palette[i % palette.length];
        entry.append(line, one.name);
        legend.append(entry);
      });
      shown.append(legend);
    }
    if (series.length === 0) body.append(element("div", "none", "No data"));
    else kinds[panel.type](panel, body, series, state);
  }
  document.body.dataset.drawn = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

fetch("state.json").then(answer => answer.json()).then(state => {
  draw(state);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(state));
});
