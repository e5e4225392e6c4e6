// Element ids and `data-` attributes are all that the script shares with the page.
"use strict";
const pairs = [...document.querySelectorAll("article")];
const key = `labels of ${location.pathname}`;
let saved = true;
let kept = true;
let current = 0;
const PAGE = 50;

function idOf(pair) {
  return JSON.stringify([pair.dataset.image, pair.dataset.caption]);
}

function labelled(pair) {
  return pair.querySelector("input[type=radio]:checked");
}

function restore() {
  let labels = {};
  try {
    labels = JSON.parse(localStorage.getItem(key)) || {};
  } catch {
    kept = false;
  }
  for (const pair of pairs) {
    const label = labels[idOf(pair)];
    const radio = label && pair.querySelector(`input[value="${CSS.escape(label.label)}"]`);
    if (radio) {
      radio.checked = true;
      pair.querySelector("input[type=number]").value = label.grade;
    }
  }
}

function keep() {
  const labels = {};
  for (const pair of pairs.filter(labelled)) {
    const grade = pair.querySelector("input[type=number]").value;
    labels[idOf(pair)] = {label: labelled(pair).value, grade};
  }
  try {
    localStorage.setItem(key, JSON.stringify(labels));
  } catch {
    kept = false;
  }
}

function field(text) {
  return '"' + text.replaceAll('"', '""') + '"';
}

function labelsFile(pairs) {
  const lines = ["image,caption,grade"];
  for (const pair of pairs) {
    const label = pair.querySelector("input[type=radio]:checked");
    if (label) {
      const grade = pair.querySelector("input[type=number]").value;
      const fields = [pair.dataset.image, pair.dataset.caption];
      fields.push(label.value === "right" ? grade : "0");
      lines.push(fields.map(field).join(","));
    }
  }
  return lines.join("\n") + "\n";
}

function save() {
  const link = document.createElement("a");
  const file = new Blob([labelsFile(document.querySelectorAll("article"))], {type: "text/csv"});
  link.href = URL.createObjectURL(file);
  link.download = "labels.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  saved = true;
}

function count() {
  const labels = pairs.filter(labelled).length;
  document.getElementById("labelled").textContent = labels;
  document.getElementById("save").disabled = labels === 0;
}

function change(event) {
  const pair = pairs.indexOf(event?.target.closest("article"));
  if (pair >= 0) {
    mark(pair);
  }
  saved = false;
  keep();
  count();
}

/* The pair that keys label. */
function mark(number) {
  pairs[current]?.classList.remove("current");
  current = Math.max(Math.min(number, pairs.length - 1), 0);
  pairs[current]?.classList.add("current");
}

/* Marks a pair, and shows the page that it is on. */
function show(number) {
  mark(number);
  const first = current - (current % PAGE);
  const end = Math.min(first + PAGE, pairs.length);
  pairs.forEach((pair, at) => { pair.hidden = at < first || at >= end; });
  document.getElementById("range").textContent = `${first + 1} to ${end}`;
  document.getElementById("previous").disabled = first === 0;
  document.getElementById("next").disabled = end === pairs.length;
  pairs[current]?.scrollIntoView({block: "nearest"});
}

function turn(pages) {
  show(current - (current % PAGE) + pages * PAGE);
  window.scrollTo(0, 0);
}

function press(event) {
  const typing = event.target.type === "number";
  if (typing || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const kinds = {r: "right", w: "wrong"};
  const steps = {j: 1, k: -1};
  if (event.key in steps) {
    show(current + steps[event.key]);
  } else if (event.key in kinds && pairs.length) {
    pairs[current].querySelector(`input[value=${kinds[event.key]}]`).checked = true;
    change();
    show(current + 1);
  }
}

function enlarge(event) {
  const large = document.getElementById("large");
  if (event.target.closest("dialog")) {
    large.close();
  } else if (event.target.matches("article img")) {
    large.replaceChildren(event.target.cloneNode());
    large.showModal();
  }
}

restore();
count();
/* The first pair without a label; the page stays at its top, which says how it is used. */
show(Math.max(pairs.findIndex((pair) => !labelled(pair)), 0));
window.scrollTo?.(0, 0);
document.getElementById("previous").addEventListener("click", () => turn(-1));
document.getElementById("next").addEventListener("click", () => turn(1));
document.getElementById("save").addEventListener("click", save);
document.addEventListener("change", change);
document.addEventListener("keydown", press);
document.addEventListener("click", enlarge);
window.addEventListener("beforeunload", (event) => {
  if (!saved && !kept) {
    event.preventDefault();
  }
});
