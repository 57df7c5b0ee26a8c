// Parallel coordinates as SVG: the line of each run crosses the axes of its options and scores.
const LINE = 14, LONGEST = 14;  // pixels between the labels of an axis, and letters of a label

// columns: name, and a value for each run: a number, a text or null. brushes: ranges by name, in shares of the axis;
// `changed` is called after one was dragged or removed. Returns the runs outside of the ranges.
function parallel(figure, columns, runs, brushes, changed) {
  const width = Math.max(WIDTH, 130 * columns.length), step = (width - 140) / Math.max(1, columns.length - 1);
  const picture = svg("svg", {viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": "Options and scores of runs"});
  picture.style.minWidth = `${0.75 * width}px`;
  const axes = columns.map(([name, values], number) => ({name, x: 70 + number * step, ...sharesOf(values)}));
  const [bottom, top] = [HEIGHT - 12, 40], y = (share) => bottom - share * (bottom - top), outside = new Set();
  runs.forEach((run, number) => {
    const known = axes.map((axis) => [axis, axis.of(number)]).filter(([, share]) => share !== null);
    const points = known.map(([axis, share]) => `${axis.x.toFixed(1)},${y(share).toFixed(1)}`).join(" ");
    const figures = columns.map(([name, values]) => `${name} ${shownAs(name, values[number])}`);
    const line = svg("polyline", {points, class: `${colorOf(number)} across`, "stroke-dasharray": dashOf(number)}, "",
      svg("title", {}, `${run.name}: ${figures.join(", ")}`));
    for (const axis of axes.filter(({name}) => brushes.has(name))) {
      const [low, high] = brushes.get(axis.name), share = axis.of(number) ?? -1;
      if (share < low || share > high) outside.add(number);
    }
    picture.append(pointed(line, number));
  });
  for (const {name, x, labels} of axes) {
    picture.append(svg("path", {class: "axis", d: `M${x} ${top}V${bottom}`}),
      svg("text", {x, y: 18, "text-anchor": "middle"}, name.slice(name.lastIndexOf(".") + 1)));
    let free = Infinity;
    for (const [text, share] of labels.sort((label, other) => label[1] - other[1])) {
      if (y(share) > free - LINE) continue;
      free = y(share);
      const label = text.length > LONGEST ? `${text.slice(0, LONGEST)}\u2026` : text;
      picture.append(svg("text", {x: x + 6, y: free - 5, class: "value"}, label));
    }
    brush(picture, x, y, brushes.get(name), (range) => {
      if (range) brushes.set(name, range); else brushes.delete(name);
      changed();
    });
  }
  figure.replaceChildren(picture);
  return outside;
}

// The places of values on an axis, from 0 to 1: numbers by size, their logarithms if the range is wide; texts in order.
function sharesOf(values) {
  const known = [...new Set(values.filter((value) => value !== null).map(String))].sort();
  const numeric = known.every((text) => Number.isFinite(Number(text)));
  const number = (text) => numeric ? Number(text) : known.indexOf(text), [low, high] = spread(known.map(number));
  const scale = axis(low, high, 0, 1, numeric && low > 0 && high / low >= 10);
  const share = (text) => high > low ? scale.place(number(text)) : 0.5;
  const shown = !numeric || known.length <= 6 ? known : scale.ticks;
  const labels = shown.map((text) => [numeric ? short(Number(text)) : text, share(text)]);
  return {of: (run) => values[run] === null ? null : share(String(values[run])), labels};
}

// Drag along an axis to choose a range of it; click to remove the range.
function brush(picture, x, y, range, choose) {
  const [bottom, top] = [y(0), y(1)], box = picture.viewBox.baseVal;
  const area = svg("rect", {x: x - 12, y: top - 6, width: 24, height: bottom - top + 12, class: "area"});
  const mark = svg("rect", {x: x - 6, width: 12, class: "brush"});
  const show = ([low, high]) => {
    mark.setAttribute("y", y(high));
    mark.setAttribute("height", y(low) - y(high));
  };
  const share = (event) => {
    const frame = picture.getBoundingClientRect(), here = (event.clientY - frame.top) / frame.height * box.height;
    return Math.min(1, Math.max(0, (bottom - here) / (bottom - top)));
  };
  const dragged = (event) => [from, share(event)].sort((start, end) => start - end);
  let from = null;
  area.addEventListener("pointerdown", (event) => {
    from = share(event);
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => from !== null && show(dragged(event)));
  area.addEventListener("pointerup", (event) => {
    const [low, high] = dragged(event);
    choose(high - low < 0.02 ? null : [low, high]);
  });
  if (range) show(range);
  picture.append(mark, area);
}
