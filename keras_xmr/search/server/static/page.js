"use strict";

/* The photos of the query; the address of the page has the query, except for uploads. */

const byId = (id) => document.getElementById(id);
const body = document.body;
const maxParts = Number(body.dataset.maxParts);

const photoParts = {ids: [], files: []};
let shown = {hits: [], text: "", at: 0, more: null};
let running = null;
let typing = 0;

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
    throw new Error(answer.error || `The server answered with an error (${response.status}).`);
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
  return {folder, since: byId("since").value || null, until: byId("until").value || null, tags};
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
  photoParts.files = [];
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
  byId("parts").querySelectorAll("img[src^=blob]").forEach((image) => URL.revokeObjectURL(image.src));
  byId("parts").replaceChildren(
    ...photoParts.ids.map((id) => part(`/thumbnails/${id}`, "like this photo", "ids", id)),
    ...photoParts.files.map((file) => {
      const source = URL.createObjectURL(file);
      return part(source, errors[file.name] || `like ${file.name}`, "files", file, errors[file.name]);
    }),
  );
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
    say(`${name} cannot be read: is it a folder, or not there any more?`, "problem");
  }
}

/* A dropped folder is not a file: sending it would look like a server that does not answer. */
function isReadable(file) {
  return file.slice(0, 1).arrayBuffer().then(() => true, () => false);
}

function likePhoto(id) {
  byId("viewer").close();
  byId("query").value = "";
  photoParts.ids = [id];
  photoParts.files = [];
  scrollTo({top: 0});
  search();
}

/* Searching. */

/* A typed search replaces the previous one in the history, until it is submitted. */
async function search({remember = true, typed = false} = {}) {
  clearTimeout(typing);
  const wanted = request();
  showParts();
  countFilters();
  if (remember) {
    const isNew = toAddress(wanted) !== location.pathname + location.search;
    if (isNew && !(history.state && history.state.typed)) {
      history.pushState({typed}, "", toAddress(wanted));
    } else {
      history.replaceState({typed}, "", toAddress(wanted));
    }
  }
  await run((signal) => (isEmpty(wanted) ? browse(wanted, signal) : find(wanted, signal, typed)));
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
      byId("end").replaceChildren(error.message, " ", button("Try again", loadMore));
    } else if (error.name !== "AbortError") {
      clear();
      say(error.message, "problem");
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

async function find(wanted, signal, typed = false, count = PAGE) {
  const asking = {...wanted, count};
  const result = await (photoParts.files.length ? sendFiles(asking, signal) : post("/search", asking, signal));
  const {hits, searched} = result;
  /* The index may have been replaced: further photos must belong to the same result. */
  const goesOn = count > PAGE && shown.hits.every((hit, place) => hits[place]?.id === hit.id);
  const first = goesOn ? shown.hits.length : 0;
  clear(goesOn);
  const most = Math.min(searched, MOST);
  const twice = Math.min(2 * count, MOST);
  const more = hits.length < most && ((other) => find(wanted, other, typed, twice));
  shown = {hits, text: wanted.texts[0] || "", at: shown.at, more};
  document.title = shown.text || "Photo search";
  showParts(Object.fromEntries(result.broken.map(({name, error}) => [name, error])));
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

async function browse(wanted, signal, after = "") {
  const {folder, since, until, tags} = wanted;
  const few = Object.entries({folder, since, until, after}).filter(([, value]) => value);
  const search = new URLSearchParams([...few, ...tags.map((tag) => ["tags", tag]), ["count", PAGE]]);
  const {photos, total, next} = await fetchJson(`/photos?${search}`, {signal});
  const first = after ? shown.hits.length : 0;
  if (!after) {
    clear();
    document.title = "Photo search";
    /* Photos without a day are last: if the first has no day, none has. */
    const order = photos[0]?.taken ? ", the newest first" : "";
    byId("summary").append(make("p", {textContent: total ? plural(total, "photo") + order : ""}));
  }
  byId("end").replaceChildren();
  const more = next && ((other) => browse(wanted, other, next));
  shown = {hits: [...shown.hits.slice(0, first), ...photos], text: "", at: shown.at, more};
  show(first, (hit) => (shown.hits[0].taken ? month(hit.taken) : ""));
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
  banner.append(text);
  byId("messages").append(banner);
}

/* The summary of a search. */

function summarise(result, typed) {
  result.broken.forEach(({error}) => say(error, "problem", "This photo was skipped."));
  /* The last word may be incomplete. */
  const unknown = result.unknown_words.filter((word) => !(typed && shown.text.endsWith(word)));
  if (unknown.length) {
    const words = unknown.map((word) => `“${word}”`).join(", ");
    say(`${words}.`, "unsure", "Words that the model does not know:");
  }
  const row = make("div", {className: "row"});
  if (result.hits.length) {
    row.append(make("span", {textContent: countText(result)}));
  }
  const notes = result.notes.filter((note) => note !== NOTHING).join(" ");
  byId("summary").append(row, make("p", {className: "quiet", textContent: notes}));
}

function countText({hits, searched, certified, seconds}) {
  const best = certified ? "The best" : "Probably the best";
  const photos = `${best} ${number(hits.length)} of ${plural(searched, "photo")}`;
  return `${photos}, in ${seconds < 0.01 ? "less than 0.01" : seconds.toFixed(2)} s`;
}

/* Photos. */

/* Photos come below the others as one scrolls. Those that are far away leave an empty space of
   their height, so that a page of 100,000 photos is as quick as one of a hundred. */

function show(first, titleOf) {
  if (shown.hits.length === 0) {
    byId("results").append(nothing());
  }
  for (let start = first; start < shown.hits.length; start += PAGE) {
    const chunk = make("div", {className: "chunk"});
    const end = Math.min(start + PAGE, shown.hits.length);
    chunk.fill = () => chunk.replaceChildren(...lists(start, end, titleOf));
    chunk.fill();
    byId("results").append(chunk);
    far.observe(chunk);
  }
  /* Observed again, to be notified of an end that is still in sight. */
  near.unobserve(byId("end"));
  if (shown.more) {
    near.observe(byId("end"));
  }
}

/* Photos of a chunk: a list for each title, and the last one up to the edge if it continues. */
function lists(start, end, titleOf) {
  const parts = [];
  let before = start ? titleOf(shown.hits[start - 1]) : "";
  let list = null;
  for (let place = start; place < end; place += 1) {
    const title = titleOf(shown.hits[place]);
    if (title !== before || !list) {
      list = make("ol", {className: "gallery", start: place + 1});
      parts.push(...(title && title !== before ? [make("h2", {textContent: title})] : []), list);
    }
    before = title;
    list.append(card(shown.hits[place], place));
  }
  const following = shown.hits[end];
  list.classList.toggle("goes-on", following ? titleOf(following) === before : Boolean(shown.more));
  return parts;
}

const far = new IntersectionObserver((entries) => {
  for (const {target, isIntersecting} of entries) {
    if (isIntersecting && !target.firstChild) {
      target.fill();
      target.style.height = "";
    } else if (!isIntersecting && target.firstChild && !target.contains(document.activeElement)) {
      target.style.height = `${target.offsetHeight}px`;
      target.replaceChildren();
    }
  }
}, {rootMargin: "300% 0px"});

const near = new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting)) {
    loadMore();
  }
}, {rootMargin: "100% 0px"});

async function loadMore() {
  const {more} = shown;
  if (more && !running) {
    near.unobserve(byId("end"));
    await run(more, true);
  }
}

function month(taken) {
  const [year, name] = taken.split("-");
  const day = new Date(Number(year), Number(name) - 1);
  return taken ? day.toLocaleDateString("en", {month: "long", year: "numeric"}) : "Day not known";
}

function card(hit, place) {
  const ratio = Math.min(2.4, Math.max(0.7, hit.width / hit.height || 1));
  const image = make("img", {src: address("thumbnails", hit), alt: hit.path, loading: "lazy"});
  const picture = button("", () => view(place), {className: "picture", title: hit.path});
  picture.append(image);
  picture.dataset.place = place;
  const item = make("li", {className: "hit"}, picture);
  item.style.setProperty("--ratio", ratio.toFixed(3));
  if (hit.score !== undefined) {
    item.append(score(hit, place), make("div", {className: "buttons"},
      button("Similar", () => likePhoto(hit.id), {title: "More like this"})));
  }
  if (typeof hit.duplicate_of === "number") {
    item.append(make("p", {className: "same", textContent: "nearly the same as another photo"}));
  }
  return item;
}

function address(kind, hit) {
  return `/${kind}/${hit.id}?v=${encodeURIComponent(`${hit.taken}-${hit.width}x${hit.height}`)}`;
}

/* The score orders the photos of one search; its probability, where a model has one, is the bar. */
function score(hit, place) {
  const line = make("div", {className: "score"}, make("span", {className: "rank", textContent: place + 1}));
  line.append(make("span", {textContent: scoreText(hit), title: "Other kinds of search have other scales"}));
  if (hit.probability !== null) {
    const bar = make("span", {className: "track"}, make("b"));
    bar.style.setProperty("--part", `${(100 * hit.probability).toFixed(1)}%`);
    line.append(bar);
  }
  return line;
}

function scoreText(hit) {
  const match = hit.probability === null ? "" : `, match ${percent(hit.probability)}`;
  return `score ${hit.score.toFixed(3)}${match}`;
}

function percent(probability) {
  if (probability > 0.995) {
    return "> 99 %";
  }
  return probability < 0.005 ? "< 1 %" : `${Math.round(100 * probability)} %`;
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
  if (byId("original")) {
    byId("original").href = `/originals/${hit.id}`;
  }
  const facts = [hit.path, hit.taken.slice(0, 10), `${hit.width} × ${hit.height}`, ...(hit.tags || [])];
  if (hit.score !== undefined) {
    facts.unshift(scoreText(hit));
  }
  byId("facts").textContent = facts.filter(Boolean).join("  ·  ");
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === shown.hits.length - 1;
  if (place > shown.hits.length - 5) {
    loadMore().then(() => { byId("next").disabled = shown.at === shown.hits.length - 1; });
  }
  if (!byId("viewer").open) {
    byId("viewer").showModal();
  }
}

function closed() {
  const card = document.querySelector(`[data-place="${shown.at}"]`);
  if (card) {
    card.focus();
  }
}

function viewerKeys(event) {
  const actions = {
    ArrowLeft: () => view(shown.at - 1),
    ArrowRight: () => view(shown.at + 1),
  };
  if (actions[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    actions[event.key]();
  }
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

/* While the model is loading. */

async function waitForModel() {
  const {status} = await fetch("/healthz").then((response) => response.json()).catch(() => ({}));
  const note = byId("loading");
  if (status === "loading") {
    if (!note) {
      byId("search").append(make("p", {id: "loading", className: "quiet", textContent:
        "The model is loading; the first search waits for it."}));
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
byId("query").addEventListener("input", typeAhead);
byId("unlike").addEventListener("input", typeAhead);
byId("filters").addEventListener("change", () => search());
byId("reset").addEventListener("click", resetFilters);
byId("previous").addEventListener("click", () => view(shown.at - 1));
byId("next").addEventListener("click", () => view(shown.at + 1));
byId("like").addEventListener("click", () => likePhoto(shown.hits[shown.at].id));
byId("close").addEventListener("click", () => byId("viewer").close());
byId("viewer").addEventListener("close", closed);
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
addEventListener("popstate", () => {
  fromAddress();
  search({remember: false});
});

fromAddress();
search({remember: false});
waitForModel();
