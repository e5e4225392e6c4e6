"use strict";

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
  if (hit.score !== undefined && body.classList.contains("scores")) {
    facts.unshift(scoreText(hit));
  }
  byId("facts").textContent = facts.filter(Boolean).join("  ·  ");
  byId("previous").disabled = place === 0;
  byId("next").disabled = place === shown.hits.length - 1;
  if (place > shown.hits.length - 5) {
    loadMore().then(() => { byId("next").disabled = shown.at === shown.hits.length - 1; });
  }
  if (byId("viewer").open) {
    amendEntry({view: hit.id});
    return;
  }
  byId("viewer").showModal();
  if (entry().view === undefined) {
    savePlace();
    history.pushState({...entry(), view: hit.id}, "");
  }
}

/* Opens the photo that was large in an entry of the history, if the list has it. */
function viewById(id) {
  const place = id === undefined ? -1 : shown.hits.findIndex((hit) => hit.id === id);
  if (place >= 0) {
    view(place);
  } else if (id !== undefined) {
    amendEntry({view: undefined});
  }
}

/* A large photo is an entry of the history, so that Back closes it. */
function closed() {
  if (entry().view !== undefined) {
    history.back();
  }
  const card = document.querySelector(`[data-place="${shown.at}"]`);
  if (card) {
    card.focus();
  }
}

/* Closes the large photo by a click beside the dialog, or beside the photo in it. */
function closeBeside(event) {
  const large = byId("large");
  const {left, top, width, height} = large.getBoundingClientRect();
  const scale = Math.min(width / large.naturalWidth, height / large.naturalHeight);
  const isBeside = Math.abs(event.clientX - left - width / 2) > (scale * large.naturalWidth) / 2
    || Math.abs(event.clientY - top - height / 2) > (scale * large.naturalHeight) / 2;
  if (event.target === byId("viewer") || (event.target === large && isBeside)) {
    byId("viewer").close();
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
