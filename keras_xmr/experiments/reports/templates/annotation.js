// Element ids and `data-` attributes are all that the script shares with the page.
"use strict";
const pairs = [...document.querySelectorAll("article")];
const key = `labels of ${location.pathname}`;
let saved = true;
let kept = true;
let current = -1;

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
  document.getElementById("labelled").textContent = pairs.filter(labelled).length;
}

function change() {
  saved = false;
  keep();
  count();
}

function show(number) {
  pairs[current]?.classList.remove("current");
  current = Math.min(Math.max(number, 0), pairs.length - 1);
  pairs[current]?.classList.add("current");
  pairs[current]?.scrollIntoView({block: "nearest"});
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
  } else if (event.key in kinds && current >= 0) {
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
document.getElementById("save").addEventListener("click", save);
document.addEventListener("change", change);
document.addEventListener("keydown", press);
document.addEventListener("click", enlarge);
window.addEventListener("beforeunload", (event) => {
  if (!saved && !kept) {
    event.preventDefault();
  }
});
