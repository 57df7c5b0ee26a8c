const ROW = 26;  // pixels, the height of a word
const LEAST = 8;  // of 255: fainter lines are not drawn while no word is chosen
const FEW = 6;  // words named when one is pointed at
const NAMES = {encoder: "Source words attend to source words", decoder: "Target words attend to earlier target words",
  cross: "Target words attend to source words"};
const sentences = JSON.parse(find("data").textContent);
const night = matchMedia("(prefers-color-scheme: dark)");
const canvas = find("lines");
const now = {sentence: 0, kind: "", layer: 0, heads: new Set(), word: null};  // word: {side, place}

const maps = () => sentences[now.sentence].kinds[now.kind];
const colour = (head) => `hsl(${Math.round(360 * head / maps().heads)} ${night.matches ? "75% 68%" : "72% 38%"})`;

// The weights of a kind as bytes, unpacked when they are first asked for.
function bytes(map) {
  if (!map.bytes) map.bytes = Uint8Array.from(atob(map.weights), (letter) => letter.charCodeAt(0));
  return map.bytes;
}

function weight(head, row, column) {
  const map = maps();
  return bytes(map)[((now.layer * map.heads + head) * map.rows.length + row) * map.columns.length + column];
}

// What a sentence has decides what can be chosen; choices that are still there stay.
function choose() {
  const pair = sentences[now.sentence], kinds = Object.keys(NAMES).filter((kind) => pair.kinds[kind]);
  if (!kinds.includes(now.kind)) { now.kind = kinds[kinds.length - 1]; now.layer = Infinity; }
  const map = maps();
  now.layer = Math.min(now.layer, map.layers - 1);
  now.heads = new Set([...now.heads].filter((head) => head < map.heads));
  if (!now.heads.size) now.heads = new Set(Array.from({length: map.heads}, (_, head) => head));
  fill(find("kind"), kinds.map((kind) => [kind, kind]), now.kind);
  fill(find("layer"), Array.from({length: map.layers}, (_, layer) => [layer, layer + 1]), now.layer);
  find("sentence").value = now.sentence;
  find("source").textContent = pair.source;
  find("target").textContent = pair.target;
  find("what").textContent = `${NAMES[now.kind]}, layer ${now.layer + 1}`;
  now.word = null;
  showHeads();
  showWords();
  showMaps();
}

function showHeads() {
  find("heads").replaceChildren(...Array.from({length: maps().heads}, (_, head) => {
    const label = element("label"), box = element("input");
    box.type = "checkbox";
    box.checked = now.heads.has(head);
    label.style.setProperty("--c", colour(head));
    label.append(box, String(head + 1));
    box.addEventListener("change", () => {
      if (box.checked) now.heads.add(head); else now.heads.delete(head);
      markMaps();
      look();
    });
    return label;
  }));
}

function showWords() {
  for (const side of ["left", "right"]) {
    const words = side === "left" ? maps().rows : maps().columns;
    find(side).replaceChildren(...words.map((text, place) => {
      const item = element("li"), word = element("button", "", "word"), letters = element("bdi", text);
      word.type = "button";
      word.title = text;
      word.tabIndex = place || side === "right" ? -1 : 0;
      word.append(letters);
      for (const event of ["mouseenter", "focus", "click"]) word.addEventListener(event, () => point({side, place}));
      word.addEventListener("mouseleave", () => point(focused()));
      word.addEventListener("blur", () => point(null));
      item.append(word, element("span", "", "weights"));
      return item;
    }));
  }
  look();
}

const buttons = (side) => [...find(side).querySelectorAll(".word")];

function focused() {
  for (const side of ["left", "right"]) {
    const place = buttons(side).indexOf(document.activeElement);
    if (place >= 0) return {side, place};
  }
  return null;
}

function point(word) {
  now.word = word;
  look();
}

// The weights between the word pointed at and one of the other side, by chosen head, 0 to 255.
function between(place) {
  const {side, place: own} = now.word;
  return [...now.heads].sort((a, b) => a - b).map((head) =>
    [head, side === "left" ? weight(head, own, place) : weight(head, place, own)]);
}

const mean = (weights) => weights.reduce((sum, [, value]) => sum + value, 0) / Math.max(1, weights.length) / 255;
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;

function look() {
  document.querySelector(".columns").style.setProperty("--squares", now.heads.size);  // room that words do not move from
  for (const side of ["left", "right"]) {
    buttons(side).forEach((word, place) => {
      const chosen = now.word && now.word.side === side && now.word.place === place;
      word.classList.toggle("chosen", Boolean(chosen));
      const weights = word.parentNode.lastChild;
      if (!now.word || now.word.side === side) { weights.replaceChildren(); return; }
      const heads = between(place);
      weights.replaceChildren(element("b", percent(mean(heads))), ...heads.map(([head, value]) => {
        const square = element("i");
        square.style.setProperty("--c", colour(head));
        square.style.opacity = value / 255;
        square.title = `head ${head + 1}: ${percent(value / 255)}`;
        return square;
      }));
    });
  }
  say();
  draw();
}

function say() {
  if (!now.word) { find("reading").textContent = ""; return; }
  const left = now.word.side === "left", {rows, columns} = maps();
  const words = left ? columns : rows, own = (left ? rows : columns)[now.word.place];
  const shares = words.map((text, place) => [mean(between(place)), text]).sort((a, b) => b[0] - a[0]);
  const list = shares.slice(0, FEW).filter(([share]) => share >= 0.0005);
  const line = [element("bdi", own), left ? " attends to " : " is attended to by "];
  list.forEach(([share, text], number) => line.push(number ? ", " : "", element("bdi", text), ` ${percent(share)}`));
  find("reading").replaceChildren(...line);
}

function draw() {
  const {rows, columns} = maps(), height = ROW * Math.max(rows.length, columns.length), width = canvas.clientWidth || 200;
  const fine = devicePixelRatio || 1, brush = canvas.getContext("2d");
  canvas.width = width * fine;
  canvas.height = height * fine;
  canvas.style.height = `${height}px`;
  brush.scale(fine, fine);
  brush.lineWidth = now.heads.size > 1 ? 1.6 : 2.2;
  const heads = [...now.heads].sort((a, b) => a - b);
  heads.forEach((head, order) => {
    const aside = heads.length > 1 ? (order / (heads.length - 1) - 0.5) * 9 : 0;  // heads side by side
    brush.strokeStyle = colour(head);
    rows.forEach((_, row) => {
      columns.forEach((_, column) => {
        const value = weight(head, row, column);
        const on = !now.word || (now.word.side === "left" ? now.word.place === row : now.word.place === column);
        if (!on || value < (now.word ? 1 : LEAST)) return;
        brush.globalAlpha = value / 255;
        brush.beginPath();
        brush.moveTo(0, ROW * (row + 0.5) + aside);
        brush.lineTo(width, ROW * (column + 0.5) + aside);
        brush.stroke();
      });
    });
  });
}

function showMaps() {
  const map = maps(), lines = [];
  const head = element("tr");
  head.append(element("th"), ...Array.from({length: map.heads}, (_, number) => element("th", number + 1)));
  lines.push(head);
  for (let layer = 0; layer < map.layers; layer += 1) {
    const line = element("tr");
    line.append(element("th", layer + 1));
    for (let number = 0; number < map.heads; number += 1) {
      const cell = element("td"), button = element("button");
      button.type = "button";
      button.dataset.layer = layer;
      button.dataset.head = number;
      button.title = `layer ${layer + 1}, head ${number + 1}`;
      button.setAttribute("aria-label", button.title);
      button.append(picture(map, layer, number));
      button.addEventListener("click", () => {
        now.layer = layer;
        now.heads = new Set([number]);
        find("layer").value = layer;
        find("what").textContent = `${NAMES[now.kind]}, layer ${layer + 1}`;
        showHeads();
        markMaps();
        look();
      });
      cell.append(button);
      line.append(cell);
    }
    lines.push(line);
  }
  find("maps").replaceChildren(...lines);
  markMaps();
}

function markMaps() {
  for (const button of find("maps").querySelectorAll("button")) {
    const chosen = Number(button.dataset.layer) === now.layer && now.heads.has(Number(button.dataset.head));
    button.setAttribute("aria-pressed", String(chosen));
  }
}

function picture(map, layer, head) {
  const made = element("canvas"), brush = made.getContext("2d"), height = map.rows.length, width = map.columns.length;
  made.width = width;
  made.height = height;
  brush.fillStyle = colour(head);
  brush.fillRect(0, 0, 1, 1);
  const [red, green, blue] = brush.getImageData(0, 0, 1, 1).data, image = brush.createImageData(width, height);
  const all = bytes(map), first = (layer * map.heads + head) * height * width;
  for (let place = 0; place < height * width; place += 1) image.data.set([red, green, blue, all[first + place]], 4 * place);
  brush.putImageData(image, 0, 0);
  return made;
}

function walk(event) {
  const at = focused();
  if (!at) return;
  if (event.key === "Escape") { document.activeElement.blur(); return; }
  const [side, place] = {ArrowDown: [at.side, at.place + 1], ArrowUp: [at.side, at.place - 1], ArrowLeft: ["left", at.place],
    ArrowRight: ["right", at.place], Home: [at.side, 0], End: [at.side, Infinity]}[event.key] || [];
  if (!side) return;
  event.preventDefault();
  const all = buttons(side), next = all[Math.min(Math.max(place, 0), all.length - 1)];
  for (const word of [...buttons("left"), ...buttons("right")]) word.tabIndex = word === next ? 0 : -1;
  next.focus();
}

find("sentence").addEventListener("change", (event) => { now.sentence = Number(event.target.value); choose(); });
find("kind").addEventListener("change", (event) => { now.kind = event.target.value; now.layer = Infinity; choose(); });
find("layer").addEventListener("change", (event) => { now.layer = Number(event.target.value); choose(); });
find("all").addEventListener("click", () => { now.heads = new Set(); choose(); });
document.querySelector(".columns").addEventListener("keydown", walk);
addEventListener("resize", draw);
night.addEventListener("change", choose);
fill(find("sentence"), sentences.map((pair, place) => [place, `${pair.line}: ${pair.source}`]), 0);
if (sentences.length) choose();
