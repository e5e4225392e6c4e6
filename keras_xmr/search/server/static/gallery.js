"use strict";

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
  item.append(button("Similar", () => likePhoto(hit.id), {className: "similar", title: "Find photos like this one"}));
  holdable(item);
  if (hit.score !== undefined) {
    item.append(score(hit, place));
  }
  if (typeof hit.duplicate_of === "number") {
    item.append(make("p", {className: "same", textContent: "nearly the same as another photo"}));
  }
  return item;
}

function address(kind, hit) {
  return `/${kind}/${hit.id}?v=${encodeURIComponent(`${hit.taken}-${hit.width}x${hit.height}`)}`;
}

/* A long press shows the button of a photo where no pointer can hover. */
function holdable(item) {
  let timer = 0;
  const end = () => clearTimeout(timer);
  item.addEventListener("pointerdown", (event) => {
    end();
    if (event.pointerType !== "mouse") {
      timer = setTimeout(() => hold(item), 450);
    }
  });
  for (const name of ["pointerup", "pointercancel", "pointerleave"]) {
    item.addEventListener(name, end);
  }
  item.addEventListener("contextmenu", (event) => {
    if (item.classList.contains("held")) {
      event.preventDefault();
    }
  });
}

function hold(item) {
  document.querySelectorAll(".held").forEach((other) => other.classList.remove("held"));
  item.classList.add("held");
  /* The end of the press is not a click that opens the photo. */
  const stop = (event) => {
    if (!event.target.closest(".similar")) {
      event.preventDefault();
      event.stopPropagation();
    }
  };
  item.addEventListener("click", stop, {capture: true, once: true});
  addEventListener("pointerdown", () => item.removeEventListener("click", stop, {capture: true}), {once: true});
}

/* Scores are shown only where somebody wants them; the browser remembers it. */
function showScores(isOn) {
  body.classList.toggle("scores", isOn);
  byId("scores").checked = isOn;
  try {
    localStorage.setItem("scores", isOn ? "1" : "");
  } catch {
    /* Without storage, it is asked again. */
  }
}

function wantsScores() {
  try {
    return Boolean(localStorage.getItem("scores"));
  } catch {
    return false;
  }
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
