"use strict";

/* The query and its history; the address of the page has the query, except for uploads. */

const byId = (id) => document.getElementById(id);
const body = document.body;
const maxParts = Number(body.dataset.maxParts);

const photoParts = {ids: [], files: []};
let shown = {hits: [], text: "", at: 0, more: null, key: "", isSearch: false};
let running = null;
let typing = 0;
let following = 0;

const PAGE = 40;
const MOST = 1000;
const NOTHING = "No photo passes the filters.";

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function button(text, onclick, properties = {}) {
  return make("button", {type: "button", textContent: text, onclick, ...properties});
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/[^.?!]$/, "$&.");
const quoted = (words) => words.map((word) => `“${word}”`).join(", ");
const number = (value) => value.toLocaleString("en");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/* Requests to the server. */

async function fetchJson(path, options = {}) {
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
    const failure = new Error(answer.error || `the server answered with an error (${response.status})`);
    throw Object.assign(failure, {broken: answer.broken || []});
  }
  return answer;
}

function post(path, content, signal) {
  const headers = {"Content-Type": "application/json"};
  return fetchJson(path, {method: "POST", headers, body: JSON.stringify(content), signal});
}

/* The query. */

function filters() {
  const tags = [...document.querySelectorAll("input[name=tag]:checked")].map((box) => box.value);
  const folder = byId("folder") ? byId("folder").value : "";
  const [since, until] = ["since", "until"].map((name) => (byId(name) && byId(name).value) || null);
  return {folder, since, until, tags};
}

function request() {
  const text = byId("query").value.trim();
  const unlike = byId("unlike").value.split(",").map((part) => part.trim()).filter(Boolean);
  return {
    texts: text ? [text] : [],
    ids: photoParts.ids,
    unlike: unlike.slice(0, maxParts),
    ...filters(),
  };
}

function isEmpty(wanted) {
  return !(wanted.texts.length || wanted.ids.length || photoParts.files.length);
}

function toAddress(wanted) {
  const search = new URLSearchParams();
  wanted.texts.forEach((text) => search.append("q", text));
  wanted.ids.forEach((id) => search.append("like", id));
  if (wanted.unlike.length) {
    search.set("not", byId("unlike").value);
  }
  for (const name of ["folder", "since", "until"]) {
    if (wanted[name]) {
      search.set(name, wanted[name]);
    }
  }
  wanted.tags.forEach((tag) => search.append("tag", tag));
  return search.size ? `/?${search}` : "/";
}

function fromAddress() {
  const search = new URLSearchParams(location.search);
  byId("query").value = search.get("q") || "";
  byId("unlike").value = search.get("not") || "";
  photoParts.ids = search.getAll("like").map(Number).filter(Number.isSafeInteger);
  photoParts.files = uploads.get(entry().files) || [];
  for (const name of ["folder", "since", "until"]) {
    if (byId(name)) {
      byId(name).value = search.get(name) || "";
    }
  }
  const tags = new Set(search.getAll("tag"));
  for (const box of document.querySelectorAll("input[name=tag]")) {
    box.checked = tags.has(box.value);
  }
  showParts();
  countFilters();
}

function countFilters() {
  const {folder, since, until, tags} = filters();
  const active = [folder, since, until, byId("unlike").value.trim(), ...tags].filter(Boolean).length;
  byId("active").textContent = active ? `(${active} set)` : "";
}

function resetFilters() {
  for (const name of ["folder", "since", "until", "unlike"]) {
    if (byId(name)) {
      byId(name).value = "";
    }
  }
  document.querySelectorAll("input[name=tag]").forEach((box) => { box.checked = false; });
  search();
}

function showParts(errors = {}) {
  byId("parts").replaceChildren(
    ...photoParts.ids.map((id) => part(`/thumbnails/${id}`, "like this photo", "ids", id)),
    ...photoParts.files.map((file) => {
      return part(addressOf(file), errors[file.name] || `like ${file.name}`, "files", file, errors[file.name]);
    }),
  );
}

/* The address of an upload, for as long as the history may have it. */
function addressOf(file) {
  const address = addresses.get(file) || URL.createObjectURL(file);
  addresses.set(file, address);
  return address;
}

function part(source, text, kind, value, error) {
  const image = make("img", {src: source, alt: ""});
  image.onerror = () => image.remove();
  const remove = button("×", () => {
    photoParts[kind] = photoParts[kind].filter((other) => other !== value);
    search();
  }, {title: "Remove", ariaLabel: `Remove: ${text}`});
  return make("li", {className: error ? "broken" : ""}, image, make("span", {textContent: text}), remove);
}

async function addFiles(files) {
  const added = [...files].filter((file) => file.type.startsWith("image/") || file.name);
  body.classList.add("busy");
  const readable = await Promise.all(added.map(isReadable));
  const most = Number(body.dataset.maxImages);
  photoParts.files = [...photoParts.files, ...added.filter((_, at) => readable[at])].slice(0, most);
  if (readable.includes(true)) {
    await search();
  } else if (!running) {
    body.classList.remove("busy");
  }
  for (const {name} of added.filter((_, at) => !readable[at])) {
    say(`${name}: is it a folder, or not there any more?`, "problem", "This cannot be read:");
  }
}

/* A dropped folder is not a file: sending it would look like a server that does not answer. */
function isReadable(file) {
  return file.slice(0, 1).arrayBuffer().then(() => true, () => false);
}

function likePhoto(id) {
  byId("query").value = "";
  photoParts.ids = [id];
  photoParts.files = [];
  search();
  shown.at = -1;
  byId("viewer").close();
  scrollTo({top: 0});
}

/* The history. The state of an entry has `typed`, whether further typing replaces it; `files`, the
   number of its uploads; `photos`, how many its list has; `place` and `top`, the first visible photo
   and where it is; and `view`, the id of the photo that is large in it. Uploads are lost when the
   page is loaded again. */

const uploads = new Map();
const addresses = new WeakMap();

const entry = () => history.state || {};

function amendEntry(changes) {
  history.replaceState({...entry(), ...changes}, "");
}

function savePlace() {
  const top = (picture) => picture.getBoundingClientRect().top;
  const first = [...document.querySelectorAll(".picture")].find((picture) => top(picture) >= 0);
  const where = first && scrollY > 0 ? {place: first.dataset.place, top: top(first)} : {place: 0};
  amendEntry({...where, photos: shown.hits.length});
}

function returnToPlace({place = 0, top = 0}) {
  scrollTo({top: 0, behavior: "instant"});
  const picture = place > 0 && document.querySelector(`[data-place="${place}"]`);
  if (picture) {
    scrollTo({top: picture.getBoundingClientRect().top - top, behavior: "instant"});
  }
}

/* The list that an entry shows. */
const listKey = () => `${location.pathname}${location.search} ${entry().files || ""}`;

function remember(wanted, typed, submitted) {
  const address = toAddress(wanted);
  const before = uploads.get(entry().files) || [];
  const {files} = photoParts;
  const keepsFiles = files.length === before.length && files.every((file, at) => file === before[at]);
  const isNew = address !== location.pathname + location.search || !keepsFiles;
  const key = keepsFiles ? entry().files : uploads.size + 1;
  if (!keepsFiles) {
    uploads.set(key, [...files]);
  }
  const isReplaced = ((typed || submitted) && entry().typed) || entry().view !== undefined;
  if (isNew && !isReplaced) {
    savePlace();
    history.pushState({typed, files: key}, "", address);
  } else {
    history.replaceState({typed, files: key}, "", address);
  }
}

/* Shows an entry of the history, where one was in it. */
function goTo() {
  if (shown.key !== listKey()) {
    fromAddress();
    search({isNew: false});
  } else if (entry().view !== undefined) {
    viewById(entry().view);
  } else {
    byId("viewer").close();
  }
}

/* Searching. */

async function search({isNew = true, typed = false, submitted = false} = {}) {
  clearTimeout(typing);
  const wanted = request();
  showParts();
  countFilters();
  if (isNew) {
    remember(wanted, typed, submitted);
  } else if (byId("viewer").open && entry().view === undefined) {
    byId("viewer").close();
  }
  const [key, state] = [listKey(), entry()];
  shown.key = "";
  await run(async (signal) => {
    const count = Math.max(PAGE, isNew ? 0 : state.photos || 0);
    await (isEmpty(wanted) ? browse(wanted, signal, {count}) : find(wanted, signal, {typed, count}));
    shown.key = key;
    if (!isNew) {
      returnToPlace(state);
      viewById(state.view);
    }
  });
}

/* There is one request at a time: a newer one cancels the older one. */
async function run(work, goesOn = false) {
  if (running) {
    running.abort();
  }
  const control = new AbortController();
  running = control;
  body.classList.add("busy");
  body.classList.toggle("reloading", !goesOn);
  try {
    await work(control.signal);
  } catch (error) {
    if (error.name !== "AbortError" && goesOn) {
      byId("end").replaceChildren(sentence(error.message), " ", button("Try again", loadMore));
    } else if (error.name !== "AbortError") {
      clear();
      shown = {...shown, hits: [], more: null};
      if (error.broken?.length) {
        skipped(error.broken);
      } else {
        say(error.message, "problem");
      }
    }
  } finally {
    if (running === control) {
      running = null;
      body.classList.remove("busy", "reloading");
    }
  }
}

function typeAhead() {
  clearTimeout(typing);
  typing = setTimeout(() => search({typed: true}), 300);
}

async function find(wanted, signal, {typed = false, count = PAGE, isMore = false}) {
  const asking = {...wanted, count};
  const result = await (photoParts.files.length ? sendFiles(asking, signal) : post("/search", asking, signal));
  const {hits, searched} = result;
  /* The index may have been replaced: further photos must belong to the same result. */
  const goesOn = isMore && shown.hits.every((hit, place) => hits[place]?.id === hit.id);
  const first = goesOn ? shown.hits.length : 0;
  clear(goesOn);
  const most = Math.min(searched, MOST);
  const further = {typed, count: Math.min(2 * count, MOST), isMore: true};
  const more = hits.length < most && ((other) => find(wanted, other, further));
  shown = {hits, text: wanted.texts[0] || "", at: shown.at, more, key: shown.key, isSearch: true};
  document.title = shown.text || body.dataset.title;
  skipped(result.broken);
  summarise(result, typed);
  show(first, () => "");
  const rest = searched - most;
  byId("end").textContent = rest > 0 && !more ? `${plural(rest, "photo")} that fit less are not shown.` : "";
}

function sendFiles(wanted, signal) {
  const form = new FormData();
  form.append("query", JSON.stringify(wanted));
  photoParts.files.forEach((file) => form.append("images", file));
  return fetchJson("/similar", {method: "POST", body: form, signal});
}

async function browse(wanted, signal, {after = "", count = PAGE}) {
  const {folder, since, until, tags} = wanted;
  const few = Object.entries({folder, since, until, after}).filter(([, value]) => value);
  const most = Math.min(count, MOST);
  const search = new URLSearchParams([...few, ...tags.map((tag) => ["tags", tag]), ["count", most]]);
  const {photos, total, next} = await fetchJson(`/photos?${search}`, {signal});
  const first = after ? shown.hits.length : 0;
  if (!after) {
    clear();
    document.title = body.dataset.title;
    /* Photos without a day are last: if the first has no day, none has. */
    const order = photos[0]?.taken ? ", the newest first" : "";
    byId("summary").append(make("p", {textContent: total ? plural(total, "photo") + order : ""}));
  }
  byId("end").replaceChildren();
  const more = next && ((other) => browse(wanted, other, {after: next}));
  const hits = [...shown.hits.slice(0, first), ...photos];
  shown = {hits, text: "", at: shown.at, more, key: shown.key, isSearch: false};
  show(first, (hit) => (shown.hits[0].taken ? month(hit.taken) : ""));
  if (next && count > most) {
    await browse(wanted, signal, {after: next, count: count - most});
  }
}

function nothing() {
  if (body.dataset.photos === "0") {
    return make("div", {className: "empty"},
      make("p", {textContent: "The index has no photos yet. Put some into its folder and run “index” again; "
        + "with “serve --watch” they appear by themselves."}));
  }
  return make("div", {className: "empty"},
    make("p", {textContent: NOTHING}),
    button("Reset filters", resetFilters));
}

/* Removes the last result; its photos stay if further ones follow. */
function clear(goesOn = false) {
  for (const id of goesOn ? ["messages", "summary"] : ["messages", "summary", "results", "end"]) {
    byId(id).replaceChildren();
  }
  if (!goesOn) {
    far.disconnect();
    near.unobserve(byId("end"));
  }
}

function say(text, kind = "", strong = "") {
  const banner = make("p", {className: `banner ${kind}`});
  if (strong) {
    banner.append(make("strong", {textContent: strong}), " ");
  }
  banner.append(strong ? text : sentence(text));
  byId("messages").append(banner);
}

/* Says which uploads cannot be used, and marks them. */
function skipped(broken) {
  showParts(Object.fromEntries(broken.map(({name, error}) => [name, error])));
  broken.forEach(({error}) => say(error, "problem", "This photo was skipped:"));
}

/* The summary of a search. */

function summarise(result, typed) {
  /* The last word may be incomplete. */
  const isWhole = (word) => !(typed && shown.text.toLowerCase().endsWith(word.toLowerCase()));
  const unknown = result.unknown_words.filter(isWhole);
  if (unknown.length) {
    say(`${quoted(unknown)}.`, "unsure", "Words that the model does not know:");
  }
  const row = make("div", {className: "row"});
  if (result.hits.length) {
    row.append(make("span", {textContent: countText(result)}));
  }
  const notes = result.notes.filter((note) => note !== NOTHING);
  const untrained = result.untrained_words.filter(
    (word) => isWhole(word) && !result.unknown_words.includes(word.toLowerCase()));
  if (untrained.length) {
    const never = untrained.length === 1 ? "this word with a photo" : "these words with photos";
    notes.unshift(`No training caption has ${quoted(untrained)}: the model never saw ${never}.`);
  }
  byId("summary").append(row, make("p", {className: "quiet", textContent: notes.join(" ")}));
}

function countText({hits, searched, certified}) {
  const best = certified ? "The best" : "Probably the best";
  return `${best} ${number(hits.length)} of ${plural(searched, "photo")}`;
}

/* The query has the focus at first: a slash begins no query, so it never types one there. */
function slashKey(event) {
  const isQuery = event.target === byId("query") && !event.target.value;
  const typing = !isQuery && event.target.closest("input, select, textarea, dialog");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("query").select();
  }
}

/* The server: whether its model is loading, and how many photos it has by now. */

async function follow() {
  clearTimeout(following);
  const state = await fetch("/healthz").then((response) => response.json()).catch(() => ({}));
  const {status} = state;
  const note = byId("loading");
  if (status === "loading") {
    if (!note) {
      byId("search").append(make("p", {id: "loading", className: "quiet", textContent:
        "The model is loading; the first search waits for it."}));
    }
  } else if (note) {
    note.remove();
  }
  if (state.photos !== undefined) {
    countPhotos(state);
  }
  if (!document.hidden) {
    following = setTimeout(follow, status === "loading" ? 1000 : 5000);
  }
}

function countPhotos({photos, unreadable}) {
  const more = unreadable ? `, ${number(unreadable)} more cannot be read` : "";
  byId("count").textContent = `${plural(photos, "photo")}${more}`;
  const isNew = body.dataset.photos !== String(photos);
  body.dataset.photos = photos;
  /* The list of all photos is shown again, unless somebody is looking at a part of it. */
  if (isNew && shown.key && !shown.isSearch && !running && scrollY < 200 && !byId("viewer").open) {
    search({isNew: false});
  }
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  search({submitted: true});
});
byId("files").addEventListener("change", (event) => {
  addFiles(event.target.files);
  event.target.value = "";
});
byId("query").addEventListener("input", typeAhead);
byId("unlike").addEventListener("input", typeAhead);
byId("filters").addEventListener("change", () => search());
byId("reset").addEventListener("click", resetFilters);
byId("previous").addEventListener("click", () => view(shown.at - 1));
byId("next").addEventListener("click", () => view(shown.at + 1));
byId("like").addEventListener("click", () => likePhoto(shown.hits[shown.at].id));
byId("close").addEventListener("click", () => byId("viewer").close());
byId("viewer").addEventListener("close", closed);
byId("viewer").addEventListener("click", closeBeside);
byId("scores").addEventListener("change", (event) => showScores(event.target.checked));
byId("large").addEventListener("error", () => {
  byId("facts").textContent = "This photo cannot be shown: it may have been changed or removed. Search again.";
});
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
  body.classList.toggle("dropping", event.dataTransfer.types.includes("Files"));
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
addEventListener("popstate", goTo);
let scrolled = 0;
addEventListener("scroll", () => {
  clearTimeout(scrolled);
  scrolled = setTimeout(() => (shown.key && !byId("viewer").open ? savePlace() : null), 150);
}, {passive: true});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    follow();
  }
});

history.scrollRestoration = "manual";
showScores(wantsScores());
fromAddress();
search({isNew: false});
follow();
