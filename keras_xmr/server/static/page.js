"use strict";

/* What is asked for lives in `asked`; the address of the page repeats it, but for uploads. */

const byId = (id) => document.getElementById(id);
const body = document.body;
const takesMarks = Boolean(body.dataset.marks);
const maxParts = Number(body.dataset.maxParts);

const asked = {ids: [], files: []};
let shown = {hits: [], text: "", grades: {}, at: 0};
let running = null;

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function button(text, onclick, properties = {}) {
  return make("button", {type: "button", textContent: text, onclick, ...properties});
}

const number = (value) => value.toLocaleString("en");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/* Talking to the server. */

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new Error("The server does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Error(answer.error || `The server answered with an error (${response.status}).`);
  }
  return answer;
}

function post(path, content, signal) {
  const headers = {"Content-Type": "application/json"};
  return ask(path, {method: "POST", headers, body: JSON.stringify(content), signal});
}

/* What is asked for. */

function filters() {
  const tags = [...document.querySelectorAll("input[name=tag]:checked")].map((box) => box.value);
  const folder = byId("folder") ? byId("folder").value : "";
  return {folder, since: byId("since").value || null, until: byId("until").value || null, tags};
}

function request() {
  const text = byId("query").value.trim();
  const unlike = byId("unlike").value.split(",").map((part) => part.trim()).filter(Boolean);
  const wanted = {
    texts: text ? [text] : [],
    ids: asked.ids,
    unlike: unlike.slice(0, maxParts),
    count: Number(byId("count").value),
    matcher: byId("matcher") ? byId("matcher").value : "",
    ...filters(),
  };
  return {...wanted, rerank: reranks(wanted) ? "fast_reranking" : ""};
}

/* Re-ranking is for a single text, ranked as the index does. */
function reranks({texts, ids, unlike, matcher}) {
  const box = byId("rerank");
  const others = ids.length + asked.files.length + unlike.length;
  if (box) {
    box.disabled = Boolean(others || matcher);
  }
  return Boolean(box && box.checked && !box.disabled && texts.length);
}

function isEmpty(wanted) {
  return !(wanted.texts.length || wanted.ids.length || asked.files.length);
}

function toAddress(wanted) {
  const search = new URLSearchParams();
  wanted.texts.forEach((text) => search.append("q", text));
  wanted.ids.forEach((id) => search.append("like", id));
  if (wanted.unlike.length) {
    search.set("not", byId("unlike").value);
  }
  for (const name of ["matcher", "rerank", "folder", "since", "until"]) {
    if (wanted[name]) {
      search.set(name, wanted[name]);
    }
  }
  wanted.tags.forEach((tag) => search.append("tag", tag));
  if (wanted.count !== 20) {
    search.set("show", wanted.count);
  }
  return search.size ? `/?${search}` : "/";
}

function fromAddress() {
  const search = new URLSearchParams(location.search);
  byId("query").value = search.get("q") || "";
  byId("unlike").value = search.get("not") || "";
  asked.ids = search.getAll("like").map(Number).filter(Number.isSafeInteger);
  asked.files = [];
  setCount(Number(search.get("show")) || 20);
  for (const name of ["matcher", "folder", "since", "until"]) {
    if (byId(name)) {
      byId(name).value = search.get(name) || "";
    }
  }
  if (byId("rerank")) {
    byId("rerank").checked = search.has("rerank");
  }
  const tags = new Set(search.getAll("tag"));
  for (const box of document.querySelectorAll("input[name=tag]")) {
    box.checked = tags.has(box.value);
  }
  showParts();
  countFilters();
}

function setCount(count) {
  const select = byId("count");
  if (![...select.options].some((option) => Number(option.value) === count)) {
    select.append(make("option", {textContent: count}));
  }
  select.value = count;
}

function countFilters() {
  const {folder, since, until, tags} = filters();
  const active = [folder, since, until, ...tags].filter(Boolean).length;
  byId("active").textContent = active ? `(${active} set)` : "";
}

function resetFilters() {
  for (const name of ["folder", "since", "until"]) {
    if (byId(name)) {
      byId(name).value = "";
    }
  }
  document.querySelectorAll("input[name=tag]").forEach((box) => { box.checked = false; });
  search();
}

function showParts(errors = {}) {
  byId("parts").querySelectorAll("img[src^=blob]").forEach((image) => URL.revokeObjectURL(image.src));
  byId("parts").replaceChildren(
    ...asked.ids.map((id) => part(`/thumbnails/${id}`, "like this photo", "ids", id)),
    ...asked.files.map((file) => {
      const source = URL.createObjectURL(file);
      return part(source, errors[file.name] || `like ${file.name}`, "files", file, errors[file.name]);
    }),
  );
}

function part(source, text, kind, value, error) {
  const image = make("img", {src: source, alt: ""});
  image.onerror = () => image.remove();
  const remove = button("×", () => {
    asked[kind] = asked[kind].filter((other) => other !== value);
    search();
  }, {title: "Remove", ariaLabel: `Remove: ${text}`});
  return make("li", {className: error ? "broken" : ""}, image, make("span", {textContent: text}), remove);
}

async function addFiles(files) {
  const added = [...files].filter((file) => file.type.startsWith("image/") || file.name);
  body.classList.add("busy");
  const readable = await Promise.all(added.map(isReadable));
  const most = Number(body.dataset.maxImages);
  asked.files = [...asked.files, ...added.filter((_, at) => readable[at])].slice(0, most);
  if (readable.includes(true)) {
    await search();
  } else if (!running) {
    body.classList.remove("busy");
  }
  for (const {name} of added.filter((_, at) => !readable[at])) {
    say(`${name} cannot be read: is it a folder, or not there any more?`, "problem");
  }
}

/* A folder that was dropped is none: sending it would look as if the server did not answer. */
function isReadable(file) {
  return file.slice(0, 1).arrayBuffer().then(() => true, () => false);
}

function likePhoto(id) {
  byId("viewer").close();
  byId("query").value = "";
  asked.ids = [id];
  asked.files = [];
  scrollTo({top: 0});
  search();
}

/* Searching. */

async function search(remember = true) {
  const wanted = request();
  showParts();
  countFilters();
  if (remember && toAddress(wanted) !== location.pathname + location.search) {
    history.pushState(null, "", toAddress(wanted));
  }
  if (running) {
    running.abort();
  }
  const control = new AbortController();
  running = control;
  body.classList.add("busy");
  try {
    await (isEmpty(wanted) ? browse(wanted, control.signal) : find(wanted, control.signal));
  } catch (error) {
    if (error.name !== "AbortError") {
      clear();
      say(error.message, "problem");
    }
  } finally {
    if (running === control) {
      running = null;
      body.classList.remove("busy");
    }
  }
}

async function find(wanted, signal) {
  const [result, marks] = await Promise.all([
    asked.files.length ? sendFiles(wanted, signal) : post("/search", wanted, signal),
    takesMarks && wanted.texts.length
      ? ask(`/marks?${new URLSearchParams({caption: wanted.texts[0]})}`, {signal})
      : {grades: {}},
  ]);
  clear();
  shown = {hits: result.hits, text: wanted.texts[0] || "", grades: marks.grades, at: 0};
  document.title = shown.text || "Photo search";
  showParts(Object.fromEntries(result.broken.map(({name, error}) => [name, error])));
  summarise(result, wanted);
  byId("results").append(...gallery(result, wanted));
}

function sendFiles(wanted, signal) {
  const form = new FormData();
  form.append("query", JSON.stringify(wanted));
  asked.files.forEach((file) => form.append("images", file));
  return ask("/similar", {method: "POST", body: form, signal});
}

async function browse(wanted, signal) {
  const {folder, since, until, tags} = wanted;
  const few = Object.entries({folder, since, until}).filter(([, value]) => value);
  const search = new URLSearchParams([...few, ...tags.map((tag) => ["tags", tag]), ["count", 24]]);
  const {photos} = await ask(`/photos?${search}`, {signal});
  clear();
  document.title = "Photo search";
  shown = {hits: photos, text: "", grades: {}, at: 0};
  if (photos.length === 0) {
    byId("results").append(nothing());
    return;
  }
  byId("summary").append(
    make("h1", {textContent: "Say what the photo shows, in a phrase or a sentence"}),
    make("p", {className: "quiet", textContent:
      "Or begin with a photo: one of yours, or one of these, which are from all over the index."}),
  );
  byId("results").append(make("ol", {className: "gallery"}, ...photos.map(card)));
}

function nothing() {
  if (body.dataset.photos === "0") {
    return make("div", {className: "empty"},
      make("p", {textContent: "The index holds no photos yet. Add some:"}),
      make("code", {textContent: "keras-xmr index --run=saved_models/NAME --images=FOLDER"}));
  }
  return make("div", {className: "empty"},
    make("p", {textContent: "No photo passes the filters."}),
    button("Reset filters", resetFilters));
}

function clear() {
  for (const id of ["messages", "summary", "results", "analysis"]) {
    byId(id).replaceChildren();
  }
  byId("analysis").hidden = true;
}

function say(text, kind = "", strong = "") {
  const banner = make("p", {className: `banner ${kind}`});
  if (strong) {
    banner.append(make("strong", {textContent: strong}), " ");
  }
  banner.append(text);
  byId("messages").append(banner);
}

/* What is said of a search. */

function summarise(result, wanted) {
  result.broken.forEach(({error}) => say(error, "problem", "This photo was left out."));
  const {answer} = result;
  if (answer && answer.verdict === "none") {
    say(`${answer.sentence} The nearest ones are shown.`, "unsure");
  }
  if (result.unknown_words.length) {
    const words = result.unknown_words.map((word) => `“${word}”`).join(", ");
    say(`${words}.`, "unsure", "Words that the model does not know:");
  }
  const row = make("div", {className: "row"});
  if (answer && answer.sentence && answer.verdict !== "none") {
    row.append(make("span", {className: "verdict", textContent: answer.sentence}));
  }
  row.append(make("span", {textContent: countText(result)}));
  if (result.uncertainty !== null) {
    row.append(...vagueness(result.uncertainty));
    const words = shown.text.split(/\s+/).length;
    if (words >= 2 && words <= 24 && wanted.texts.length === 1) {
      row.append(button("Which words matter?", () => analyse(wanted), {className: "small"}));
    }
  }
  const notes = result.notes.map((note) => make("p", {className: "quiet", textContent: note}));
  byId("summary").append(row, ...notes);
}

function countText({hits, searched, certified, seconds}) {
  const best = certified ? "The best" : "Probably the best";
  const photos = `${best} ${number(hits.length)} of ${plural(searched, "photo")}`;
  return `${photos}, in ${seconds < 0.01 ? "less than 0.01" : seconds.toFixed(2)} s`;
}

const vague = [
  "A very precise query",
  "A precise query",
  "A query neither vague nor precise",
  "A vague query: many photos may be right",
  "A very vague query: many photos may be right",
];

function vagueness(percentile) {
  const level = Math.min(4, Math.floor(percentile / 20));
  const scale = make("span", {className: "scale", ariaHidden: "true"});
  vague.forEach((_, step) => scale.append(make("i", {className: step <= level ? "on" : ""})));
  const title = `More uncertain than ${Math.round(percentile)} % of the captions of training`;
  return [make("span", {title}, scale, ` ${vague[level]}`)];
}

async function analyse(wanted) {
  const {folder, since, until, tags} = wanted;
  const section = byId("analysis");
  body.classList.add("busy");
  try {
    const content = {text: wanted.texts[0], count: 20, folder, since, until, tags};
    const result = await post("/words", content);
    section.replaceChildren(...wordTable(result));
  } catch (error) {
    section.replaceChildren(make("p", {textContent: error.message}));
  } finally {
    body.classList.remove("busy");
    section.hidden = false;
  }
}

function wordTable({uncertainty, words}) {
  const head = ["Word", "Without it, the query is", "Photos that it brings", "Photos that it keeps out"];
  const rows = words.map((entry) => make("tr", {},
    make("td", {textContent: entry.word}),
    make("td", {textContent: moved(entry.uncertainty, uncertainty)}),
    make("td", {}, ...thumbs(entry.gained)),
    make("td", {}, ...thumbs(entry.lost))));
  return [
    make("h2", {textContent: "Which words matter"}),
    make("p", {className: "quiet", textContent:
      "Each word is dropped in turn. Points are percentiles of uncertainty among the captions of "
      + "training; photos are compared among the first 20."}),
    make("table", {},
      make("tr", {}, ...head.map((text) => make("th", {textContent: text}))), ...rows),
  ];
}

function moved(without, whole) {
  if (without === null) {
    return "not measured";
  }
  const points = Math.round(without - whole);
  if (points === 0) {
    return "as vague as before";
  }
  return points > 0 ? `vaguer by ${points}` : `more precise by ${-points}`;
}

function thumbs(ids) {
  const images = ids.slice(0, 5).map((id) => make("img", {src: `/thumbnails/${id}`, alt: `photo ${id}`}));
  return ids.length > 5 ? [...images, ` and ${ids.length - 5} more`] : ids.length ? images : ["none"];
}

/* Photos. */

function gallery({hits, searched}, wanted) {
  if (hits.length === 0) {
    return [nothing()];
  }
  const list = make("ol", {className: "gallery"}, ...hits.map(card));
  return [list, ...moreOf(hits, searched, wanted)];
}

function moreOf(hits, searched, wanted) {
  const most = Math.min(searched, 1000);
  const count = 2 * wanted.count;
  const parts = [];
  if (hits.length < most) {
    parts.push(button(`Show ${number(Math.min(count, most))}`, () => {
      setCount(Math.min(count, most));
      search();
    }));
  }
  return parts.length ? [make("div", {className: "more"}, ...parts)] : [];
}

function card(hit, place) {
  const ratio = Math.min(2.4, Math.max(0.7, hit.width / hit.height || 1));
  const image = make("img", {src: address("thumbnails", hit), alt: hit.path, loading: "lazy"});
  const picture = button("", () => view(place), {className: "picture", title: hit.path});
  picture.append(image);
  const item = make("li", {className: "hit"}, picture);
  item.style.setProperty("--ratio", ratio.toFixed(3));
  if (hit.score !== undefined) {
    item.append(score(hit, place));
  }
  item.append(make("div", {className: "buttons"},
    button("More like this", () => likePhoto(hit.id)),
    make("span", {className: "marking"}, ...markButtons(hit))));
  if (typeof hit.duplicate_of === "number") {
    item.append(make("p", {className: "same", textContent: "nearly the same as another photo"}));
  }
  return item;
}

function address(kind, hit) {
  return `/${kind}/${hit.id}?v=${encodeURIComponent(`${hit.taken}-${hit.width}x${hit.height}`)}`;
}

function score(hit, place) {
  const line = make("div", {className: "score"}, make("span", {className: "rank", textContent: place + 1}));
  if (hit.probability === null) {
    line.append(make("span", {textContent: `score ${hit.score.toFixed(3)}`}));
    return line;
  }
  const bar = make("span", {className: "track"}, make("b"));
  bar.style.setProperty("--part", `${(100 * hit.probability).toFixed(1)}%`);
  line.append(make("span", {textContent: `match ${percent(hit.probability)}`}), bar);
  return line;
}

function percent(probability) {
  if (probability > 0.995) {
    return "> 99 %";
  }
  return probability < 0.005 ? "< 1 %" : `${Math.round(100 * probability)} %`;
}

/* Marks. */

function markButtons(hit) {
  if (!takesMarks || !shown.text) {
    return [];
  }
  return [["Right", 1], ["Wrong", 0]].map(([text, grade]) => {
    const one = button(text, () => mark(hit, grade), {
      className: text.toLowerCase(),
      title: `${text} for “${shown.text}”; kept in the file of judgements`,
      ariaPressed: String(shown.grades[hit.path] === grade),
    });
    Object.assign(one.dataset, {photo: hit.id, grade});
    return one;
  });
}

async function mark(hit, grade) {
  const wanted = shown.grades[hit.path] === grade ? null : grade;
  try {
    await post("/marks", {id: hit.id, caption: shown.text, grade: wanted});
  } catch (error) {
    byId("messages").replaceChildren();
    say(error.message, "problem");
    return;
  }
  if (wanted === null) {
    delete shown.grades[hit.path];
  } else {
    shown.grades[hit.path] = wanted;
  }
  for (const one of document.querySelectorAll(`button[data-photo="${hit.id}"]`)) {
    one.ariaPressed = String(Number(one.dataset.grade) === wanted && wanted !== null);
  }
}

/* One photo. */

function view(place) {
  const hit = shown.hits[place];
  if (!hit) {
    return;
  }
  shown.at = place;
  const large = byId("large");
  large.src = address("photos", hit);
  large.alt = hit.path;
  const facts = [hit.path, hit.taken.slice(0, 10), `${hit.width} × ${hit.height}`, ...(hit.tags || [])];
  if (typeof hit.probability === "number") {
    facts.unshift(`match ${percent(hit.probability)}`);
  }
  byId("facts").textContent = facts.filter(Boolean).join("  ·  ");
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === shown.hits.length - 1;
  byId("marking").replaceChildren(...markButtons(hit));
  look();
  if (!byId("viewer").open) {
    byId("viewer").showModal();
  }
}

/* Where the model looks: kept on from photo to photo. */

async function look() {
  const button = byId("look");
  if (!button) {
    return;
  }
  const strip = byId("looks");
  strip.replaceChildren();
  if (button.ariaPressed !== "true") {
    return;
  }
  const {id} = shown.hits[shown.at];
  strip.append(make("p", {className: "quiet", textContent: "Looking at the photo…"}));
  body.classList.add("busy");
  try {
    const {maps} = await ask(`/attention/${id}`);
    if (id === shown.hits[shown.at].id) {
      strip.replaceChildren(...maps.map((name, number) => make("figure", {},
        make("img", {src: `/attention/${id}/${number}`, alt: `where ${name} looks`}),
        make("figcaption", {textContent: name}))));
    }
  } catch (error) {
    strip.replaceChildren(make("p", {textContent: error.message}));
  } finally {
    body.classList.remove("busy");
  }
}

function switchLook() {
  byId("look").ariaPressed = String(byId("look").ariaPressed !== "true");
  look();
}

function viewerKeys(event) {
  const hit = shown.hits[shown.at];
  const actions = {
    ArrowLeft: () => view(shown.at - 1),
    ArrowRight: () => view(shown.at + 1),
    r: () => takesMarks && shown.text && mark(hit, 1),
    w: () => takesMarks && shown.text && mark(hit, 0),
  };
  if (actions[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    actions[event.key]();
  }
}

function slashKey(event) {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("query").select();
  }
}

/* While the model is being loaded. */

async function waitForModel() {
  const {status} = await fetch("/healthz").then((response) => response.json()).catch(() => ({}));
  const note = byId("loading");
  if (status === "loading") {
    if (!note) {
      byId("search").append(make("p", {id: "loading", className: "quiet", textContent:
        "The model is being loaded; the first search waits for it."}));
    }
    setTimeout(waitForModel, 1000);
  } else if (note) {
    note.remove();
  }
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search();
});
byId("files").addEventListener("change", (event) => {
  addFiles(event.target.files);
  event.target.value = "";
});
byId("filters").addEventListener("change", () => search());
for (const name of ["count", "matcher", "rerank"]) {
  if (byId(name)) {
    byId(name).addEventListener("change", () => search());
  }
}
if (byId("look")) {
  byId("look").addEventListener("click", switchLook);
}
byId("reset").addEventListener("click", resetFilters);
byId("previous").addEventListener("click", () => view(shown.at - 1));
byId("next").addEventListener("click", () => view(shown.at + 1));
byId("like").addEventListener("click", () => likePhoto(shown.hits[shown.at].id));
byId("close").addEventListener("click", () => byId("viewer").close());
byId("viewer").addEventListener("keydown", viewerKeys);
document.addEventListener("keydown", slashKey);
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    addFiles(event.clipboardData.files);
  }
});
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  body.classList.add("dropping");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) {
    body.classList.remove("dropping");
  }
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  body.classList.remove("dropping");
  addFiles(event.dataTransfer.files);
});
addEventListener("popstate", () => {
  fromAddress();
  search(false);
});

fromAddress();
search(false);
waitForModel();
