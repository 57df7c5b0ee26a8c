"use strict";
const find = (id) => document.getElementById(id);

function element(name, text = "", className = "", ...parts) {
  const made = document.createElement(name);
  made.append(text, ...parts);
  if (className) made.className = className;
  return made;
}

function fill(select, names, chosen) {
  select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
}
