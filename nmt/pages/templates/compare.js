const STEP = 20;  // sentences drawn at a time
const ROWS = 12;  // n-grams of a table
const COLOURS = {{ LIGHT | length }};
const {systems, metrics, higher, pairs, sentences} = JSON.parse(find("data").textContent);
const now = {pair: 0, order: 0, sorting: "gains", text: "", drawn: STEP};
const count = (number, singular, plural) => `${number.toLocaleString("en")} ${number === 1 ? singular : plural}`;

// A name that may run from right to left, behind the colour of its system.
function system(place) {
  const made = element("span");
  made.append(element("i", "", `swatch k${place % COLOURS}`), element("bdi", systems[place]));
  return made;
}

function choose() {
  const {first, second, better, worse, equal} = pairs[now.pair];
  fill(find("sorting"), [["gains", `largest gains of ${systems[second]}`], ["losses", `largest losses of ${systems[second]}`],
    ["file", "order of the file"]], now.sorting);
  find("better").replaceChildren(system(second), ` is better than `, system(first), ` in ${count(better, "line", "lines")}, `,
    `worse in ${worse.toLocaleString("en")}, and equal in ${equal.toLocaleString("en")}, by ${metrics[0]} of single lines.`);
  showNGrams();
  start();
}

function showNGrams() {
  const pair = pairs[now.pair], tables = [];
  for (const kind of ["right", "wrong"]) {
    for (const [own, sign] of [[pair.second, 1], [pair.first, -1]]) {
      const rows = pair[kind].filter(([length, , first, second]) =>
        (!now.order || length === now.order) && sign * (second - first) > 0);
      tables.push(table(kind, own, pair, rows.slice(0, ROWS)));
    }
  }
  find("ngrams").replaceChildren(...tables);
}

function table(kind, own, pair, rows) {
  const figure = element("figure"), title = element("figcaption"), made = element("table", "", "ngrams"), head = element("tr");
  title.append(system(own), `: more often ${kind}`);
  const sides = [pair.first, pair.second].map((place) => {
    const cell = element("th");
    const swatch = element("i", "", `swatch k${place % COLOURS}`);
    cell.title = systems[place];
    swatch.setAttribute("role", "img");
    swatch.setAttribute("aria-label", systems[place]);
    cell.append(swatch);
    return cell;
  });
  head.append(element("th", "n-gram"), ...sides);
  made.append(head, ...rows.map(([, words, first, second]) => {
    const row = element("tr"), cell = element("td");
    cell.append(element("bdi", words));
    row.append(cell, element("td", first.toLocaleString("en")), element("td", second.toLocaleString("en")));
    return row;
  }));
  figure.append(title, rows.length ? made : element("p", "none", "note"));
  return figure;
}

// Numbers of the lines of this pair, in the order asked for, that have the text that was typed.
function chosen() {
  const {gains, losses, first, second} = pairs[now.pair];
  const every = {gains, losses, file: [...gains, ...losses].sort((a, b) => a - b)}[now.sorting];
  const wanted = now.text.toLocaleLowerCase();
  if (!wanted) return every;
  return every.filter((number) => {
    const {source, references, translations} = sentences[number];
    const texts = [String(number), source || "", ...references, ...[first, second].map((place) => translations[place].pieces.join(""))];
    return texts.some((text) => text.toLocaleLowerCase().includes(wanted));
  });
}

function start() {
  now.drawn = STEP;
  show();
}

function show() {
  const numbers = chosen(), drawn = numbers.slice(0, now.drawn), {better, worse, gains, losses} = pairs[now.pair];
  const all = {gains: better, losses: worse, file: better + worse}[now.sorting];
  const held = {gains: gains.length, losses: losses.length, file: gains.length + losses.length}[now.sorting];
  const filtered = now.text ? `, ${numbers.length.toLocaleString("en")} of them contain this text` : "";
  find("shown").textContent = held < all
    ? `${count(all, "line", "lines")}; this page shows the ${held.toLocaleString("en")} that differ most${filtered}.`
    : `${count(all, "line", "lines")}${filtered}.`;
  find("sentences").replaceChildren(...drawn.map(sentence));
  find("more").hidden = drawn.length === numbers.length;
}

function sentence(number) {
  const {source, references, translations} = sentences[number], {first, second} = pairs[now.pair];
  const made = element("table", "", "texts"), caption = element("caption");
  caption.append(element("b", `line ${number.toLocaleString("en")}`), ...metrics.map((metric, place) =>
    score(metric, translations[first].scores[place], translations[second].scores[place], higher[place])));
  made.append(caption);
  if (source !== null) made.append(line("source", source));
  references.forEach((text, place) =>
    made.append(line(references.length > 1 ? `reference ${place + 1}` : "reference", text)));
  for (const [own, other] of [[first, second], [second, first]]) {
    const row = line("", "");
    row.firstChild.replaceChildren(system(own));
    row.firstChild.title = systems[own];
    row.lastChild.append(...coloured(translations[own], own, other));
    made.append(row);
  }
  return made;
}

function score(metric, before, after, highest) {
  const change = after - before, better = highest ? change > 0 : change < 0;
  const made = element("span", `${metric} ${before.toFixed(1)} \u2192 ${after.toFixed(1)} `);
  made.append(element("b", `${change > 0 ? "+" : change < 0 ? "\u2212" : "\u00b1"}${Math.abs(change).toFixed(1)}`,
    change ? (better ? "gain" : "loss") : ""));
  return made;
}

function line(name, text) {
  const row = element("tr"), cell = element("td", text);
  cell.dir = "auto";
  row.append(element("th", name), cell);
  return row;
}

// The words of a translation; white space before a word has no colour.
function coloured({pieces, wrong, differing}, own, other) {
  const mistakes = new Set(wrong), different = new Set(differing[other]);
  return pieces.flatMap((piece, place) => {
    const word = piece.trimStart(), space = piece.slice(0, piece.length - word.length);
    if (!mistakes.has(place) && !different.has(place)) return [piece];
    const made = element(different.has(place) ? "mark" : "span", word, different.has(place) ? `k${own % COLOURS}` : "");
    made.classList.toggle("wrong", mistakes.has(place));
    return [space, made];
  });
}

find("pair").addEventListener("change", (event) => { now.pair = Number(event.target.value); choose(); });
find("order").addEventListener("change", (event) => { now.order = Number(event.target.value); showNGrams(); });
find("sorting").addEventListener("change", (event) => { now.sorting = event.target.value; start(); });
find("text").addEventListener("input", (event) => { now.text = event.target.value.trim(); start(); });
find("more").addEventListener("click", () => { now.drawn += STEP; show(); });
fill(find("pair"), pairs.map(({first, second}, place) => [place, `${systems[first]} and ${systems[second]}`]), 0);
choose();
