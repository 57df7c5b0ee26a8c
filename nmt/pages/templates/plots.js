// Charts as SVG: lines over updates, target tokens or time, with the figures under the pointer.
const WIDTH = {{ WIDTH }}, HEIGHT = {{ HEIGHT }};
const [LEFT, RIGHT, TOP, BOTTOM] = [{{ LEFT }}, {{ RIGHT }}, {{ TOP }}, {{ BOTTOM }}];  // edges of the plot
const COLORS = {{ LIGHT | length }}, DASHES = ["", "6 3", "2 3", "8 3 2 3"];  // those of a line whose color repeats
const WIDE_RANGE = 100;  // of values: beyond it, an axis is logarithmic unless its button says otherwise
const MOST_POINTS = 500, MOST_DOTS = 40, MOST_ROWS = 12, APART = 44;  // the last: pixels between ticks
const colorOf = (number) => `k${number % COLORS}`;
const dashOf = (number) => DASHES[Math.floor(number / COLORS) % DASHES.length];
const swatch = (number) => element("i", "", `swatch ${colorOf(number)}`);

function svg(name, attributes = {}, text = "", ...parts) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, typeof value === "number" ? Math.round(10 * value) / 10 : value);
  }
  made.append(text, ...parts);
  return made;
}

function toggle(parts, pressed, act) {
  const button = element("button", "", "", ...parts);
  button.type = "button";
  button.setAttribute("aria-pressed", pressed);
  button.addEventListener("click", act);
  return button;
}

function spread(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function ticks(low, high) {
  if (high <= low) return [low];
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough)), made = [];
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  for (let number = Math.ceil(low / step - 1e-9); number <= high / step + 1e-9; number++) made.push(number * step);
  return made;
}

// An axis from pixel `first` to pixel `end`: its ticks, the place of a value, and the value at a place.
function axis(low, high, first, end, log) {
  const to = log ? Math.log10 : (value) => value, from = log ? (value) => 10 ** value : (value) => value;
  const start = to(low), extent = to(high) - start || 1, powers = [];
  for (let power = Math.ceil(start - 1e-9); log && power <= to(high) + 1e-9; power++) powers.push(10 ** power);
  const stride = Math.ceil(powers.length / 6);
  return {
    ticks: powers.length > 1 ? powers.filter((_, place) => place % stride === 0) : ticks(low, high),
    place: (value) => first + (to(value) - start) / extent * (end - first),
    value: (place) => from(start + (place - first) / (end - first) * extent),
  };
}

// A chart that stays on the page while its lines grow. A point is [place, value, update].
class Plot {
  log = null;  // null: chosen by the range of the values
  at = null;  // pixels where the pointer or the arrow keys are

  constructor(title) {
    this.title = title;
    this.figure = element("figure", "", "plot");
    this.legend = element("div", "", "legend");
    this.svg = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0});
    this.tip = element("div", "", "tip");
    this.tip.setAttribute("role", "status");
    this.button = toggle(["log"], false, () => {
      this.log = this.button.getAttribute("aria-pressed") !== "true";
      this.draw();
      highlight();
    });
    this.button.ariaLabel = `logarithmic scale of ${title}`;
    this.figure.append(element("figcaption", title, "", this.button), this.legend, this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.point([(event.clientX - box.left) / box.width * WIDTH, (event.clientY - box.top) / box.height * HEIGHT]);
    });
    for (const kind of ["pointerleave", "blur"]) this.svg.addEventListener(kind, () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.step(event));
  }

  // chart: {series: [{name, number, run, points, dots, hidden}], over, logX, end, fromZero, linear, marks: [[place, text]]}
  draw(chart = this.chart) {
    const shown = chart.series.filter(({hidden}) => !hidden);
    this.chart = chart;
    const extent = (lines, part) => spread(lines.flatMap(({points}) => points.map((point) => point[part])));
    const [least, largest] = extent(shown, 1);
    const log = largest > 0 && (this.log ?? (!chart.linear && least > 0 && largest / least > WIDE_RANGE));
    const usable = (point) => (!log || point[1] > 0) && (!chart.logX || point[0] > 0);
    this.lines = shown.map((series) => ({...series, points: series.points.filter(usable)})).filter(({points}) => points.length);
    this.button.setAttribute("aria-pressed", log);
    if (single) this.drawLegend(chart);
    this.svg.replaceChildren();
    const ends = this.lines.slice(0, MOST_ROWS).map((series) => `${series.name} ${short(latest(series.points))}`);
    this.svg.setAttribute("aria-label", `${this.title}: ${ends.join(", ")}`);
    if (!this.lines.length) return;
    const [first, end] = extent(this.lines, 0);
    let [low, high] = extent(this.lines, 1);
    if (!log) {
      const room = 0.04 * (high - low || Math.abs(high) || 1);
      [low, high] = [chart.fromZero ? Math.min(0, low) : low - room, high + room];
    }
    this.across = axis(chart.logX ? first : 0, Math.max(end, chart.end), LEFT, RIGHT, chart.logX);
    this.upwards = axis(low, high, BOTTOM, TOP, log);
    this.drawAxes(chart);
    this.lines.forEach((series) => this.drawLine(series));
    this.cross = svg("path", {class: "cross"});
    this.svg.append(this.cross);
    if (this.at) this.point(this.at);
  }

  drawLegend(chart) {
    const focus = [...this.legend.children].indexOf(document.activeElement);
    this.legend.replaceChildren(...chart.series.map(({name, number, points, hidden}) => {
      const value = element("b", short(latest(points)));
      return chart.lines.length === 1 ? element("span", "last ", "", value)
        : toggle([swatch(number), `${name} `, value], !hidden, () => hide(name));
    }));
    this.legend.children[focus]?.focus();
  }

  drawAxes({over, marks}) {
    for (const tick of this.upwards.ticks) {
      const y = this.upwards.place(tick);
      this.svg.append(svg("path", {class: "rule", d: `M${LEFT} ${y}H${RIGHT}`}),
        svg("text", {x: LEFT - 6, y: y + 4, "text-anchor": "end"}, short(tick)));
    }
    let before = -APART;
    for (const tick of this.across.ticks.filter((tick) => over !== "updates" || Number.isInteger(tick))) {
      const x = this.across.place(tick), text = over === "seconds" ? duration(tick) : short(tick);
      if (x < before + APART) continue;
      before = x;
      const anchor = x > RIGHT - 24 ? "end" : "middle";
      this.svg.append(svg("text", {x, y: HEIGHT - 8, "text-anchor": anchor}, text));
    }
    this.svg.append(...marks.map(([place, text]) =>
      svg("path", {class: "mark", d: `M${this.across.place(place)} ${TOP}V${BOTTOM}`}, "", svg("title", {}, text))));
  }

  drawLine({number, run, points, dots}) {
    const at = ([x, y]) => [this.across.place(x), this.upwards.place(y)];
    const path = thinned(points, MOST_POINTS).map((point) => at(point).map((place) => place.toFixed(1)).join(",")).join(" ");
    const marked = dots || points.length === 1 ? thinned(points, MOST_DOTS).map(at) : [];
    const group = svg("g", {class: colorOf(number)}, "", svg("polyline", {points: path, "stroke-dasharray": dashOf(number)}),
      ...marked.map(([cx, cy]) => svg("circle", {cx, cy, r: 3})));
    if (run !== undefined) group.dataset.run = run;
    this.svg.append(group);
  }

  // Show the figures at pixels of the plot, the nearest line first; null: none.
  point(at) {
    this.at = at;
    this.figure.classList.toggle("pointed", at !== null);
    if (!at || !this.lines?.length) {
      this.cross?.setAttribute("d", "");
      highlight();
      return;
    }
    const pointed = this.across.value(at[0]), {over} = this.chart;
    const rows = this.lines.map((series) => [series, series.points[nearest(series.points, pointed)]]);
    const far = ([, [x, y]]) => Math.abs(this.across.place(x) - at[0]) + 0.2 * Math.abs(this.upwards.place(y) - at[1]);
    rows.sort((row, other) => far(row) - far(other));
    const [[series, [x, , update]]] = rows, left = this.across.place(x), share = 100 * left / WIDTH;
    this.nearby = [series.name, x];
    this.cross.setAttribute("d", `M${left.toFixed(1)} ${TOP}V${BOTTOM}`);
    const place = {updates: "", tokens: `, ${short(x)} target tokens`, seconds: `, ${duration(x)}`}[over];
    this.tip.replaceChildren(element("div", `update ${commas(update)}${place}`),
      ...rows.slice(0, MOST_ROWS).map(([{name, number}, [, value, other]]) => element("div", swatch(number), "", `${name} `,
        element("b", figure(value)), other === update ? "" : ` at update ${commas(other)}`)));
    this.tip.style.cssText = share < 50 ? `left: calc(${share}% + 1rem)` : `right: calc(${100 - share}% + 1rem)`;
    highlight(series.run);
  }

  step(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    const line = this.lines.find(({name}) => name === this.nearby?.[0]) ?? this.lines[0];
    if (!step || !line) return;
    event.preventDefault();
    const place = this.at ? nearest(line.points, this.nearby[1]) + step : line.points.length - 1;
    const [x, y] = line.points[Math.min(line.points.length - 1, Math.max(0, place))];
    this.point([this.across.place(x), this.upwards.place(y)]);
  }
}

// Dim the lines and rows of all runs but one; without a run, of those outside of the chosen ranges.
function highlight(run) {
  for (const part of document.querySelectorAll("[data-run]")) {
    const number = Number(part.dataset.run);
    part.classList.toggle("dim", run === undefined ? outside.has(number) : number !== run);
  }
}
