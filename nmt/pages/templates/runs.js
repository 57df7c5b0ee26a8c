// The page of one or several runs, from the events in the page or, while runs train, from the process that serves it.
const POLL = 2000, RETRY = 10000;  // milliseconds between two questions
const MOST_LISTED = 20, MOST_VALIDATIONS = 4;
const data = JSON.parse(find("data").textContent), {single} = data, plots = new Map();
const view = {over: data.over, smoothing: data.smoothing, logX: false, every: false, hidden: new Set(), sort: null};
const brushes = new Map();
let {runs} = data, machine = null, lost = false, outside = new Set();

function draw(changed = true) {
  const lines = runs.flatMap((run) => alerts(run).map((text) => single ? text : `${run.name}: ${text}`));
  if (lost && !single) lines.push("the process of this page has ended");
  document.title = `${lines.length ? "(!) " : ""}${data.title}`;
  find("alerts").hidden = !lines.length;
  renew(find("alerts"), lines.slice(0, MOST_LISTED), (text) => element("p", "", "",
    ...text.split(/(--[a-z][a-z-]*)/).map((part, place) => place % 2 ? element("code", part) : part)));  // no line ends in a flag
  if (single) drawHead(runs[0]);
  if (!changed) return;
  drawPlots();
  if (single) drawLists(runs[0]); else drawRuns();
  highlight();
}

// Replace children only if their content has changed: a screen reader says them once, and a selection stays.
function renew(parent, list, make) {
  const text = JSON.stringify(list);
  if (parent.dataset.content === text) return;
  parent.dataset.content = text;
  parent.replaceChildren(...list.map(make));
}

function drawHead(run) {
  const [kind, text] = state(run), {update, all} = totals(run), live = data.live && !closing(run);
  const since = lost ? " the process of this page has ended; report.html in the run folder shows the same"
    : !live ? "" : !run.events.length ? " the page waits for log.jsonl in this folder"
    : ` last event ${duration(run.age)} ago${curve(run, "train", "loss").length ? "" : "; curves follow with the first figures"}`;
  find("state").replaceChildren(element("span", text, kind), since);
  find("progress").hidden = !all;
  if (all) Object.assign(find("progress"), {max: all, value: update});
  renew(find("cards"), run.events.length ? cards(run, live && !lost ? machine : null) : [], ([label, value]) =>
    element("div", "", "", element("b", value), element("span", label)));
}

function drawLists(run) {
  drawTranslations(translations(run));
  listed("warnings", ["update", "warning"], of(run, "warning").map((event) => [commas(event.update), event.message ?? ""]));
  const rounded = (text) => Number.isFinite(Number(text ?? NaN)) ? figure(Number(text)) : text ?? "";
  listed("skipped", ["update", "epoch", "loss", "gradient norm"], of(run, "skipped").map((event) =>
    [commas(event.update), String(event.epoch ?? ""), rounded(event.loss), rounded(event.grad_norm)]));
}

// A table; its cells hold texts or elements.
function grid(heads, rows) {
  const line = (kind) => (cells) => element("tr", "", "", ...cells.map((cell) => element(kind, cell)));
  const body = element("tbody", "", "", ...rows.map(line("td")));
  return element("table", "", "grid", element("thead", "", "", line("th")(heads)), body);
}

// The last rows of a list, in its section.
function listed(id, heads, rows) {
  find(id).hidden = !rows.length;
  const note = rows.length > MOST_LISTED ? `The last ${MOST_LISTED} of ${commas(rows.length)} are shown.` : "";
  find(`${id}-list`).replaceChildren(element("p", note), grid(heads, rows.reverse().slice(0, MOST_LISTED)));
}

function drawTranslations(samples) {
  find("translations").hidden = !samples.length;
  renew(find("samples"), samples.map((sample) => ({...sample, every: view.every})), ({source, reference, rows, every}) => {
    const line = (kind, name, ...parts) => {
      const cell = element("td", "", "", ...parts);
      cell.dir = "auto";
      return element("tr", "", kind, element("th", name), cell);
    };
    const marked = ([kind, word]) => kind === "same" ? [word]
      : [element(kind === "new" ? "ins" : "del", word.trimEnd()), word.slice(word.trimEnd().length) || " "];
    const shown = rows.slice(0, every ? rows.length : MOST_VALIDATIONS);
    return element("table", "", "texts", line("given", "source", source), line("given", "reference", reference),
      ...shown.map(([update, parts]) => line("", `update ${commas(update)}`, ...parts.flatMap(marked))));
  });
}

// The charts: title, lines as [name, kind of the event, name of the figure], and options of `Plot`.
function charts() {
  const every = (list) => [...new Set(runs.flatMap(list))];
  const train = (title, name, more) => ({title, lines: [["training", "train", name]], fromZero: true, ...more});
  const valid = (name) => ({title: `Validation ${name}`, lines: [[name, "valid", name]], linear: !LOSSES.includes(name)});
  const both = (title, name) => ({title, lines: [["training", "train", name], ["validation", "valid", name]]});
  const norms = [["mean", "train", "grad_norm"], ["largest", "train", "largest_grad_norm"]];
  const losses = [train("Training loss", "loss", {fromZero: false}), valid("loss")];
  return [
    ...(single ? [both("Loss", "loss")] : losses),
    ...every(scores).map(valid),
    ...(single ? [both("Perplexity", "ppl")] : []),
    train("Learning rate", "lr"),
    {title: "Gradient norm", lines: single ? norms : norms.slice(0, 1), fromZero: true},
    train("Target tokens per second", "tokens_per_second"),
    train("Peak memory in MB", "memory_mb"),
    train("CPU share in %", "processor_share", {factor: 100}),
    ...every((run) => names(run, "train").filter((name) => !CURVES.includes(name))).map((name) => train(name, name)),
  ];
}

// Hide the lines of a run, or of a name, or show them again.
function hide(line) {
  if (!view.hidden.delete(line)) view.hidden.add(line);
  draw();
}

function drawPlots() {
  const clocks = runs.map((run) => clock(run, view.over)), shown = [];
  const marks = single ? skips(runs[0]).map(([update, text]) => [clocks[0](update), text]) : [];
  const end = Math.max(...clocks.map((clock, run) => clock(totals(runs[run]).update)), ...marks.map(([place]) => place));
  for (const chart of charts()) {
    const series = runs.flatMap((run, place) => chart.lines.map(([name, kind, field], number) => {
      const points = curve(run, kind, field), smooth = kind === "train" && field === "loss" && view.smoothing > 0;
      const values = smooth ? smoothed(points, view.smoothing) : points;
      return {
        ...(single ? {name, number} : {name: run.name, number: place, run: place}),
        dots: kind === "valid",
        hidden: view.hidden.has(single ? name : place),
        points: values.map(([update, value]) => [clocks[place](update), value * (chart.factor ?? 1), update]),
      };
    })).filter((line) => line.points.length);
    if (!series.length) continue;
    if (!plots.has(chart.title)) plots.set(chart.title, new Plot(chart.title));
    const plot = plots.get(chart.title);
    plot.draw({...chart, series, over: view.over, logX: view.logX, end, marks});
    shown.push(plot.figure);
  }
  const parent = find("plots");
  if (shown.some((figure, place) => parent.children[place] !== figure) || shown.length < parent.children.length) {
    parent.replaceChildren(...shown);
  }
  find("curves").hidden = !plots.size;
}

// Several runs: their names above the charts, lines across options and scores, and a table with a row for each.
function drawRuns() {
  const options = varying(runs), metrics = [...new Set(runs.flatMap((run) => names(run, "valid")))];
  const each = (value) => runs.map((run, number) => value(run, number));
  const bests = metrics.map((name) => [`best ${name}`, each((run) => best(run, name))]);
  const lasts = metrics.map((name) => [`last ${name}`, each((run) => latest(curve(run, "valid", name)))]);
  const whole = [["update", "update"], ["target tokens", "tokens"], ["time", "seconds"], ["tokens/s", "speed"]];
  renew(find("legend"), each((run, number) => [run.name, view.hidden.has(number)]), ([name, hidden], number) => {
    const entry = toggle([swatch(number), name], !hidden, () => {
      hide(number);
      find("legend").children[number].focus();
    });
    return pointed(entry, number);
  });
  find("parallel").hidden = !options.length;
  outside = parallel(find("across"), [...options, ...bests], runs, brushes, draw);
  drawTable([
    ["status", each((run) => state(run)[1].split(":")[0])],
    ...options,
    ...bests.flatMap((column, place) => [column, lasts[place]]),
    ["last training loss", each((run) => latest(curve(run, "train", "loss")))],
    ...whole.map(([name, field]) => [name, each((run) => totals(run)[field])]),
  ]);
}

function drawTable(columns) {
  const {sort} = view, values = columns.find(([name]) => name === sort?.name)?.[1];
  const order = values ? sorted(values, sort.sign) : runs.map((_, number) => number);
  const buttons = () => [...find("runs").querySelectorAll("th button")], focus = buttons().indexOf(document.activeElement);
  const signs = columns.map(([name]) => sort?.name === name ? sort.sign : 0);
  const heads = columns.map(([name], place) =>
    toggle([name, ["\u00a0\u25be", "", "\u00a0\u25b4"][signs[place] + 1]], signs[place] !== 0, () => {
      view.sort = {name, sign: signs[place] === 1 ? -1 : 1};
      draw();
    }));
  const rows = order.map((number) => {
    const name = element(data.live ? "a" : "span", runs[number].name);
    if (data.live) name.href = `run?number=${number}`;
    return [element("span", swatch(number), "", name), ...columns.map(([column, cells]) => shownAs(column, cells[number]))];
  });
  const table = grid(["run", ...heads], rows);
  table.querySelectorAll("th").forEach((head, place) =>
    head.ariaSort = ["descending", "none", "ascending"][(signs[place - 1] ?? 0) + 1]);
  table.querySelectorAll("tbody tr").forEach((row, place) => pointed(row, order[place]));
  find("runs").replaceChildren(table);
  buttons()[focus]?.focus();
}

// An element that shows which run it is of, and dims the others while the pointer is on it.
function pointed(part, run) {
  part.dataset.run = run;
  for (const kind of ["pointerenter", "focus"]) part.addEventListener(kind, () => highlight(run));
  for (const kind of ["pointerleave", "blur"]) part.addEventListener(kind, () => highlight());
  return part;
}

// Take the answer of the process. Returns whether there is news.
function receive(answer) {
  if (single && answer.runs.length > 1) location.reload();  // the folder has become that of a sweep
  const changed = answer.runs.length !== runs.length || answer.runs.some((run) => run.anew || run.events.length);
  const before = (run, place) => run.anew ? [] : runs[place]?.events ?? [];
  runs = answer.runs.map((run, place) => ({...run, events: [...before(run, place), ...run.events]}));
  const use = answer.machine;
  if (use && use.process === machine?.process) use.processor = (use.seconds - machine.seconds) / (use.time - machine.time);
  machine = use;
  return changed;
}

// Ask for the events after the last ones, unless nobody looks.
async function poll() {
  if (!document.hidden) {
    const after = runs.map((run) => run.position ?? "").join(",");
    const more = data.number === null ? "" : `&number=${data.number}`;
    let changed = false;
    try {
      changed = receive(await (await fetch(`events?after=${after}${more}`)).json());
      lost = false;
    } catch {
      lost = true;
    }
    draw(changed);
  }
  setTimeout(poll, lost ? RETRY : runs.some((run) => run.more) ? 0 : POLL);
}

for (const [name, field] of Object.entries({over: "value", smoothing: "valueAsNumber", logX: "checked", every: "checked"})) {
  const input = find(name);
  if (!input) continue;
  if (field !== "checked") input.value = view[name];
  input.addEventListener("input", () => {
    view[name] = input[field];
    draw();
  });
}
if (data.live) poll(); else draw();
