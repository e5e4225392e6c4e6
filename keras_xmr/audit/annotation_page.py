"""The page on which people label candidate pairs; it needs no network."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from data_pipelines.files import atomic_write
from keras_xmr.reporting.pages import POLICY, WIDE

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
article { display: flex; flex-wrap: wrap; gap: 1em; padding: 1em 0; border-top: 1px solid #ddd;
  scroll-margin-top: 4em; }
article > :first-child { flex: 0 0 200px; overflow-wrap: anywhere; }
article > :last-child { flex: 1 1 300px; min-width: 0; }
article img { width: 200px; cursor: zoom-in; }
article.current { outline: 3px solid #58c; outline-offset: 4px; }
dialog { max-width: 96vw; padding: 0; border: 0; cursor: zoom-out; }
dialog img { display: block; width: min(96vw, 90vh); }
kbd { border: 1px solid #bbb; border-radius: 3px; padding: 0 0.3em; }
h2 { font-size: 17px; margin: 0 0 0.3em; }
h1, h2, p, li { overflow-wrap: anywhere; }
ul { margin: 0.2em 0 0.6em; padding-left: 1.2em; color: #555; }
table { border-collapse: collapse; font-size: 13px; margin: 0.6em 0; }
td, th { padding: 0.15em 0.7em; border-bottom: 1px solid #eee; text-align: right; }
td:first-child, th:first-child { text-align: left; }
label { margin-right: 1em; }
input[type=number] { width: 5em; }
.note { color: #666; font-size: 13px; }
.bar { position: sticky; top: 0; z-index: 1; background: white; padding: 0.6em 0; margin: 0; }
"""

# Element ids and `data-` attributes are all that the script shares with the page.
_SCRIPT = """
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

function marksFile(pairs) {
  const lines = ["image,caption,label,grade"];
  for (const pair of pairs) {
    const label = pair.querySelector("input[type=radio]:checked");
    if (label) {
      const grade = pair.querySelector("input[type=number]").value;
      const graded = [label.value, label.value === "right" ? grade : ""];
      const fields = [pair.dataset.image, pair.dataset.caption, ...graded];
      lines.push(fields.map(field).join(","));
    }
  }
  return lines.join("\\n") + "\\n";
}

function save() {
  const link = document.createElement("a");
  const file = new Blob([marksFile(document.querySelectorAll("article"))], {type: "text/csv"});
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
  const kinds = {r: "right", w: "wrong", u: "unsure"};
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
"""

_POLICY = f"{POLICY}; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Vote:
    """What one model says of a pair, in words for the annotation page.

    Attributes:
        agrees: Whether it ranks the pair ahead of annotated ones in both directions.
        score: Its score.
        caption_rank: Rank of the caption among the unlabelled ones of the image.
        annotated_caption_rank: Rank of the last annotated caption of the image.
        image_rank: Rank of the image among the unlabelled ones of the caption.
        annotated_image_rank: Rank of the last annotated image of the caption.
    """

    agrees: bool
    score: float
    caption_rank: int
    annotated_caption_rank: int
    image_rank: int
    annotated_image_rank: int


@dataclass(frozen=True)
class Entry:
    """One pair of the annotation page.

    Attributes:
        image: The id of the image.
        caption: The id of the caption.
        text: The caption.
        annotated: The captions that are right for the image.
        belief: How much the models believe in the pair.
        votes: What each model says, by its name.
        picture: The image as JPEG, or None if there is none to see.
    """

    image: str
    caption: str
    text: str
    annotated: Sequence[str]
    belief: float
    votes: Mapping[str, Vote]
    picture: bytes | None = None


def thumbnail(encoded: bytes, side: int) -> bytes:
    """A small JPEG of an image file.

    Args:
        encoded: The image file.
        side: Its longer side will be at most this, in pixels.
    """
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(encoded)) as image:
        small = image.convert("RGB")
        small.thumbnail((side, side))
        small.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def write_annotation_page(
    path: Path, title: str, entries: Sequence[Entry], how_to_merge: str
) -> None:
    """Writes the page: pairs to look at, labels to set, and a button that saves them as CSV.

    Args:
        path: The page.
        title: What was audited.
        entries: The pairs.
        how_to_merge: The command that takes the labels.
    """
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_text(title)}</title><style>{WIDE}{_STYLE}</style>
<h1>{_text(title)}</h1>
<p>Nobody has annotated these pairs, but models rank them ahead of pairs that are. Say which
captions are right for their image. A pair without a label stays as it is.</p>
<p class="note">Belief: the mean number of doublings of rank by which a pair is ahead of the last
annotated one, in the direction in which it is less. Ranks count unlabelled pairs alone.</p>
<p class="note">Then: <code>{_text(how_to_merge)}</code></p>
<p class="note">Keys: <kbd>j</kbd> and <kbd>k</kbd> go to the next pair and back, <kbd>r</kbd> is
right, <kbd>w</kbd> wrong, <kbd>u</kbd> unsure, and the next pair follows. A click enlarges an
image. This browser keeps the labels; to use them, save them as a file.</p>
<p class="bar"><button id="save">save labels</button>
<span id="labelled">0</span> of {len(entries)} labelled</p>
{"".join(_article(number, entry) for number, entry in enumerate(entries, 1))}
<dialog id="large"></dialog>
<script>{_SCRIPT}</script></html>
"""
    atomic_write(path, page.encode("utf-8"))


def _article(number: int, entry: Entry) -> str:
    captions = "".join(f"<li>{_text(caption)}</li>" for caption in entry.annotated)
    agree = sum(vote.agrees for vote in entry.votes.values())
    name = f"pair-{number}"
    labels = "".join(
        f'<label><input type="radio" name="{name}" value="{kind}"> {kind}</label>'
        for kind in ("right", "wrong", "unsure")
    )
    return f"""
<article id="{name}" data-image="{_text(entry.image)}" data-caption="{_text(entry.caption)}">
<div>{_picture(entry)}</div>
<div><h2>{number}. {_text(entry.text)}</h2>
{labels}<label>grade if right <input type="number" value="1" min="0.01" step="any"></label>
<p class="note">image {_text(entry.image)}, caption {_text(entry.caption)}; belief
{entry.belief:.2f}, {agree} of {len(entry.votes)} models agree. Annotated captions of the image:</p>
<ul>{captions}</ul>
<div class="wide"><table><tr><th>model</th><th>score</th><th>caption's rank</th><th>annotated</th>
<th>image's rank</th><th>annotated</th><th>agrees</th></tr>
{"".join(_vote(model, vote) for model, vote in entry.votes.items())}</table></div></div>
</article>"""


def _vote(model: str, vote: Vote) -> str:
    cells = (
        _text(model),
        f"{vote.score:.3f}",
        f"{vote.caption_rank:,}",
        f"{vote.annotated_caption_rank:,}",
        f"{vote.image_rank:,}",
        f"{vote.annotated_image_rank:,}",
        "yes" if vote.agrees else "no",
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _picture(entry: Entry) -> str:
    if entry.picture is None:
        return _text(entry.image)
    content = base64.b64encode(entry.picture).decode()
    return f'<img src="data:image/jpeg;base64,{content}" alt="{_text(entry.image)}">'


def _text(text: str) -> str:
    return html.escape(text, quote=True)
