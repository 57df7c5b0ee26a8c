// What the events of runs mean: functions without the page. `nmt/reporting/runs_page.py` describes a run.
const LOSSES = ["loss", "nll", "ppl"], NO_CURVES = ["update", "epoch", "seconds", "tokens", "number"];
const CURVES = [...LOSSES, "lr", "grad_norm", "largest_grad_norm", "tokens_per_second", "memory_mb", "processor_share"];
const RISES = 3;  // validations after the one with the lowest loss: then the run overfits
const STALL = 60, SLOWER = 8;  // seconds without an event, and times the longest usual gap: then the run is stalled
const READING = 0.3;  // share of the time of the last events
const DENSE = "\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Thai}";  // scripts without spaces: a letter is a word
const WORDS = new RegExp(`[${DENSE}]\\s*|[^\\s${DENSE}]+\\s*`, "gu");
const finite = (value) => typeof value === "number" && Number.isFinite(value);
const last = (list) => list[list.length - 1];
const latest = (points) => points.length ? last(points)[1] : null;
const lowest = (points) => points.length ? points.reduce((point, other) => other[1] < point[1] ? other : point) : null;
const sum = (list, value) => list.reduce((whole, part) => whole + (value(part) || 0), 0);
const most = (list, value) => list.reduce((largest, part) => Math.max(largest, value(part) || 0), 0);
const of = (run, ...kinds) => run.events.filter((event) => kinds.includes(event.event));
const commas = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
const times = (count) => count === 1 ? "once" : `${commas(count)} times`;
const megabytes = (value) => value >= 1000 ? `${(value / 1000).toFixed(1)} GB` : `${value.toFixed(0)} MB`;

function short(value) {
  const size = Math.abs(value), unit = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => size >= least && size < 1e12);
  if (size >= 1000 && size < 1e4) return commas(value);
  return unit ? `${Number((value / unit[0]).toPrecision(3))}${unit[1]}` : String(Number(value.toPrecision(3))).replace("e+", "e");
}

function figure(value) {
  return Math.abs(value) >= 1000 ? short(value) : value.toFixed(Math.abs(value) < 10 ? 4 : 2);
}

function duration(seconds) {
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${Math.floor(seconds / 3600)}:${two(seconds / 60 % 60)}:${two(seconds % 60)}`;
}

// The event that closes the log; undefined if the run is running or was killed.
function closing(run) {
  const event = last(of(run, "end", "stopped", "start", "train", "valid"));
  return ["end", "stopped"].includes(event?.event) ? event : undefined;
}

// A figure over updates. The last value of an update counts; a closing event has the figures of the last updates.
function curve(run, kind, name) {
  const events = [...of(run, kind), ...(kind === "train" ? [closing(run)] : [])].filter((event) => finite(event?.[name]));
  return [...new Map(events.map((event) => [event.update, event[name]]))].sort((point, other) => point[0] - other[0]);
}

function names(run, kind) {
  const names = of(run, kind).flatMap((event) => Object.keys(event).filter((name) => finite(event[name])));
  return [...new Set(names)].filter((name) => !NO_CURVES.includes(name));
}

const metricOf = (name) => name.split(".").pop();  // of a figure of one direction, such as en-de.bleu
const scores = (run) => names(run, "valid").filter((name) => !LOSSES.includes(metricOf(name)));

function best(run, name) {
  const values = curve(run, "valid", name).map((point) => point[1]), metric = metricOf(name);
  const lower = of(run, "start").at(-1)?.lower_is_better ?? ["ter"];  // earlier versions did not record it
  return values.length ? ([...LOSSES, ...lower].includes(metric) ? Math.min : Math.max)(...values) : null;
}

// Running means m_i = share m_(i-1) + (1 - share) x_i, divided by the sum of their weights (m_0 is 0).
function smoothed(points, share) {
  let [mean, weight] = [0, 0];
  return points.map(([place, value]) => {
    [mean, weight] = [share * mean + (1 - share) * value, share * weight + 1 - share];
    return [place, mean / weight];
  });
}

// At most `count` points: the extremes of each interval, and both ends.
function thinned(points, count) {
  if (points.length <= count) return points;
  const stretch = Math.ceil(points.length / (count / 2 - 1)), kept = new Set([points[0], last(points)]);
  for (let start = 0; start < points.length; start += stretch) {
    const part = points.slice(start, start + stretch).sort((point, other) => point[1] - other[1]);
    kept.add(part[0]).add(last(part));
  }
  return [...kept].sort((point, other) => point[0] - other[0]);
}

// The number of the point that is nearest to a place, by a binary search.
function nearest(points, place) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < place) low = middle; else high = middle;
  }
  return Math.abs(points[low][0] - place) <= Math.abs(points[high][0] - place) ? low : high;
}

// A function from an update to target tokens or seconds of training: between two events, a straight line.
function clock(run, over) {
  if (over === "updates") return (update) => update;
  const points = [[0, 0]], end = closing(run);
  for (const event of of(run, "train").sort((event, other) => event.update - other.update)) {
    points.push([event.update, over === "tokens" ? latest(points) + (event.tokens || 0) : event.seconds || latest(points)]);
  }
  if (end && end.update > last(points)[0]) points.push([end.update, Math.max(latest(points), end[over] || 0)]);
  return (update) => {
    if (update >= last(points)[0]) return latest(points);
    const near = nearest(points, update), start = points[near][0] > update ? near - 1 : near;
    const [[from, low], [to, high]] = points.slice(start, start + 2);
    return low + (high - low) * (update - from) / (to - from);
  };
}

function totals(run) {
  const end = closing(run), train = of(run, "train"), tokens = sum(train, (event) => event.tokens);
  const timed = [...train, {...end, tokens: end?.tokens - tokens}].filter((event) => event.tokens_per_second > 0);
  const busy = sum(timed, (event) => event.tokens / event.tokens_per_second);
  return {
    update: most(run.events.filter((event) => event.event !== "skipped"), (event) => event.update),
    epoch: most(run.events, (event) => event.epoch),
    seconds: most(run.events, (event) => event.seconds),
    tokens: end?.tokens ?? tokens,
    speed: busy > 0 ? sum(timed, (event) => event.tokens) / busy : null,
    all: last(of(run, "start"))?.total_updates ?? null,
  };
}

// Seconds to the last update, at the mean speed since the last start; null: unknown.
function timeLeft(run) {
  const start = last(of(run, "start")), now = last(of(run, "train")), {all} = totals(run);
  if (closing(run) || run.process === "gone" || stalled(run) || !all || !now || now.update <= start.update) return null;
  const each = (now.seconds - (start.seconds || 0)) / (now.update - start.update);
  return Math.max(0, each * (all - now.update) - (run.process === "alive" ? run.age : 0));
}

// The status of a run, as a class and words.
function state(run) {
  const end = closing(run);
  if (end?.event === "end") return ["done", `finished: ${end.ending ?? ""}`];
  if (end) return [end.cause === "signal" ? "" : "failed", `stopped: ${end.cause}`];
  if (run.process) return run.process === "alive" ? ["", "running"] : ["failed", "killed"];
  return run.job.status === "failed" ? ["failed", "failed"] : ["", run.events.length ? "not finished" : "not started"];
}

// The figures at the top of the page. machine: use by the training process, and of GPUs; null: not live.
function cards(run, machine) {
  const {update, epoch, seconds, tokens, speed, all} = totals(run), left = timeLeft(run);
  const now = closing(run) ? null : last(of(run, "train")), skipped = of(run, "skipped").length;
  const losses = lowest(curve(run, "valid", "loss")), memory = latest(curve(run, "train", "memory_mb"));
  return [
    [all ? `of ${commas(all)} updates` : "updates", commas(update)],
    ["epoch", String(epoch)],
    ["time", duration(seconds)],
    ["time left", left === null ? "" : duration(left)],
    ["target tokens", short(tokens)],
    ["tokens/s", speed === null ? "" : short(now?.tokens_per_second ?? speed)],
    ["skipped updates", skipped ? commas(skipped) : ""],
    [`lowest validation loss, update ${commas(losses?.[0] ?? 0)}`, losses ? figure(losses[1]) : ""],
    ...scores(run).map((name) => [`last validation ${name}`, figure(latest(curve(run, "valid", name)))]),
    ["peak memory", memory === null ? "" : megabytes(memory)],
    ["CPU use", finite(machine?.processor) ? `${Math.round(100 * machine.processor)} %` : ""],
    ["memory now", finite(machine?.memory) ? megabytes(machine.memory) : ""],
    ...(machine?.gpus ?? []).map(([number, busy, used]) => [`GPU ${number}`, `${busy} %, ${megabytes(used)}`]),
  ].filter((card) => card[1]);
}

function overfitting(run) {
  const valid = curve(run, "valid", "loss"), least = lowest(valid), train = curve(run, "train", "loss"), now = latest(train);
  if (!least || valid.length - 1 - valid.indexOf(least) < RISES || latest(valid) <= least[1]) return null;
  const before = latest(train.filter((point) => point[0] <= least[0]));
  return before === null || now >= before ? null : `overfitting: since update ${commas(least[0])}, the validation loss has `
    + `risen from ${figure(least[1])} to ${figure(latest(valid))}, while the training loss fell from ${figure(before)} to `
    + figure(now);
}

function stalled(run) {
  const seconds = [...new Set(of(run, "start", "train", "valid").map((event) => event.seconds).filter(finite))].slice(-21);
  const usual = most(seconds.slice(1), (time) => time - seconds[seconds.indexOf(time) - 1]);
  if (run.process !== "alive" || !usual || run.age < Math.max(STALL, SLOWER * usual)) return null;
  return `stalled: no event for ${Math.floor(run.age / 60)} min, usually at most ${Math.ceil(usual)} s; perhaps a reader `
    + "waits for its disk, or a long validation runs";
}

function reading(run) {
  const recent = of(run, "train").slice(-6).filter((event) => event.times);
  const from = recent[0]?.times, to = last(recent)?.times;
  if (recent.length < 2 || closing(run)) return null;
  const spent = (name) => (to[name] || 0) - (from[name] || 0), share = spent("reading") / sum(Object.keys(to), spent);
  return share > READING ? `slow readers: since update ${commas(recent[0].update)}, reading has taken `
    + `${Math.round(100 * share)} % of the time; check the disk, or raise --readers` : null;
}

// The skipped updates, each with what happened.
function skips(run) {
  const counts = new Map();
  for (const {update} of of(run, "skipped")) counts.set(update, (counts.get(update) ?? 0) + 1);
  return [...counts].map(([update, count]) => [update, `update ${commas(update)} was skipped ${times(count)}`]);
}

// What needs a look.
function alerts(run) {
  const end = closing(run), warning = last(of(run, "warning"));
  const bad = of(run, "train", "valid", "skipped").filter((event) => event.event === "skipped" || event.loss === null);
  return [
    end?.event === "stopped" ? `stopped: ${(end.message ?? end.cause).replace(/^stopped /, "")}` : null,
    run.job.error && !end ? `failed: ${run.job.error}` : null,
    run.process === "gone" && !end ? "killed: the process has ended without a message, perhaps for lack of memory; the same command resumes it" : null,
    bad.length ? `loss or gradient not finite ${times(bad.length)}, last at update ${commas(last(bad).update)}`
      + (end ? "" : "; a lower --lr, a longer --warmup-updates or --clip-norm 1 may help") : null,
    overfitting(run),
    stalled(run),
    reading(run),
    warning ? `update ${commas(warning.update)}: ${warning.message}` : null,
  ].filter((text) => text !== null);
}

// The words of a text: "same" as in the text before, "new", or "gone" from it, by the longest common subsequence.
function changes(before, after) {
  const old = (before ?? after).match(WORDS) ?? [], now = after.match(WORDS) ?? [], parts = [];
  const equal = (i, j) => i < old.length && j < now.length && old[i].trim() === now[j].trim();
  const longest = Array.from({length: old.length + 1}, () => new Array(now.length + 1).fill(0));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      longest[i][j] = equal(i, j) ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  for (let i = 0, j = 0; i < old.length || j < now.length;) {
    if (equal(i, j)) parts.push(["same", now[j++]]), i++;
    else if (j === now.length || (i < old.length && longest[i + 1][j] >= longest[i][j + 1])) parts.push(["gone", old[i++]]);
    else parts.push(["new", now[j++]]);
  }
  return parts;
}

// For each sample of the last validation: source, reference, and [update, changes] of each validation, newest first.
function translations(run) {
  const events = of(run, "samples");
  return (last(events)?.samples ?? []).map(({source, reference}, number) => {
    const known = events.filter((event) => event.samples[number]), text = (event) => event?.samples[number].hypothesis;
    const rows = known.map((event, place) => [event.update, changes(text(known[place - 1]), text(event))]);
    return {source, reference, rows: rows.reverse()};
  });
}

// The options in which runs differ: name, and the value of each run as text.
function varying(runs) {
  const changed = (run) => last(of(run, "start"))?.changed_options, swept = (run) => run.job.options;
  const options = runs.map((run) => ({...swept(run), ...changed(run), ...swept(run)}));  // those of the sweep first
  const keys = [...new Set(options.flatMap(Object.keys))].filter((key) => !/^(checkpoint|report)\./.test(key));
  const other = runs.map((run) => changed(run) ? "default" : null);  // null: unknown, as the run has not started
  const text = (key) => options.map((values, run) => key in values ? String(values[key]) : other[run]);
  const differ = (values) => new Set(values.filter((value) => value !== null)).size > 1;
  return keys.map((key) => [key, text(key)]).filter(([, values]) => differ(values));
}

// The numbers of values in ascending (sign 1) or descending order (-1): numbers before texts, and missing values last.
function sorted(values, sign) {
  const numeric = (value) => Number.isFinite(Number(value)) ? [0, Number(value)] : [1, value];
  const rank = values.map((value) => value === null ? [2] : numeric(value));
  const compare = ([kind, text], [other, second]) => kind - other || sign * (text < second ? -1 : text > second ? 1 : 0);
  return values.map((_, number) => number).sort((row, other) => compare(rank[row], rank[other]));
}

function shownAs(column, value) {
  if (value === null || typeof value === "string") return value ?? "-";
  return column === "time" ? duration(value) : ["update", "target tokens"].includes(column) ? commas(value) : figure(value);
}
