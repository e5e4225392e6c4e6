"""Missing labels: candidates, the annotation page, and judgements amended by labels."""

from __future__ import annotations

import csv
import html.parser
import json
import shutil
import subprocess
from importlib import resources

import datasets
import models
import numpy as np
import pytest
from command_line import start
from tiny_runs import untrained

from data_pipelines.pixels import thumbnail
from keras_xmr.commands.audit import audit_runs
from keras_xmr.experiments.audit.candidates import combine_scores, find_candidates, judged_pairs
from keras_xmr.experiments.config.loader import dump_config
from keras_xmr.experiments.config.schema import AuditOptions
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.reports.pages import data_url, render
from keras_xmr.experiments.runs.configs import load_run
from keras_xmr.judgements import Judgements, JudgementsError, read_judgements
from keras_xmr.judgements.judgement_files import read_graded_pairs
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.utils.errors import ConfigError, UserError

IMAGES, CAPTIONS = ["a", "b", 'c,"1"'], ["0", "1", "2", "<3>"]


def standardised(model):
    sides = (model.image_to_text, model.text_to_image)
    return np.mean([(m - m.mean()) / m.std() for m in sides], axis=0)


def brute_candidates(scores, judged, options):
    """The walk over all pairs, in falling score, then by image and caption."""
    taken = []
    for flat in np.argsort(-scores.ravel(), kind="stable"):
        i, c = divmod(int(flat), scores.shape[1])
        of_image, of_caption = sum(i == t[0] for t in taken), sum(c == t[1] for t in taken)
        full = of_image == options.per_image or of_caption == options.per_caption
        if not judged[i, c] and not full and len(taken) < options.pairs:
            taken.append((i, c))
    return taken


@pytest.fixture
def some_models(random):
    """Scores with ties, one model with scores by direction, on very different scales."""
    shape = (23, 31)
    coarse = random.integers(0, 6, shape).astype(np.float32)
    return {
        "coarse": ScoreMatrices(coarse),
        "directed": ScoreMatrices(1e4 * random.normal(size=shape).astype(np.float32), -coarse),
        "fine": ScoreMatrices(1e-3 * random.normal(size=shape).astype(np.float32)),
    }


@pytest.mark.parametrize(("combine", "of"), [("minimum", np.min), ("mean", np.mean)])
def test_models_count_alike_whatever_the_scale_of_their_scores(some_models, combine, of):
    combined = combine_scores(some_models.items(), (23, 31), combine)
    assert combined.dtype == np.float32
    each = [standardised(model) for model in some_models.values()]
    np.testing.assert_allclose(combined, of(each, axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("pairs", "per_image", "per_caption"), [(5, 1, 1), (40, 3, 2), (60, 50, 3), (9999, 50, 50)]
)
def test_candidates_are_those_of_a_walk_over_all_pairs(
    some_models, random, pairs, per_image, per_caption
):
    judged = random.random((23, 31)) < 0.15
    options = AuditOptions(pairs=pairs, per_image=per_image, per_caption=per_caption)
    # The coarse scores have many ties, so that their order is seen, too.
    for models_ in ([("coarse", some_models["coarse"])], some_models.items()):
        scores = combine_scores(models_, (23, 31), "mean")
        found = list(map(tuple, find_candidates(scores, judged, options).tolist()))
        assert found == brute_candidates(scores, judged, options)
    assert find_candidates(scores, np.ones_like(judged), options).shape == (0, 2)


def test_scores_that_cannot_be_are_refused():
    scores = np.zeros((4, 5), np.float32)
    scores[2, 3] = np.nan
    with pytest.raises(ValueError, match="image 2 and caption 3 is nan"):
        combine_scores([("x", ScoreMatrices(scores))], (4, 5), "mean")
    with pytest.raises(ValueError, match="scores of x have the shape"):
        combine_scores([("x", ScoreMatrices(scores))], (5, 4), "mean")
    with pytest.raises(ValueError, match="no scores"):
        combine_scores([], (4, 5), "mean")


def test_pairs_that_people_called_wrong_are_not_asked_again():
    annotated = Judgements.from_pairs(np.array([0, 1, 2, 2]), 3)
    pairs, grades = np.array([[0, 1], [0, 3], [1, 1], [2, 0]]), np.array([2, 0, 0, 1])
    crowd = Judgements.from_grades(pairs, grades, (3, 4), fully_judged=False)
    known = {(0, 0), (1, 1), (2, 2), (2, 3)} | set(map(tuple, pairs.tolist()))
    found = judged_pairs([annotated, crowd])
    assert set(map(tuple, np.argwhere(found).tolist())) == known
    # Judgements that are complete say nothing of what is wrong: those pairs are asked.
    assert judged_pairs([annotated, Judgements(crowd.grades)]).sum() == 6


def labels_file(tmp_path, *lines):
    path = tmp_path / "labels.csv"
    path.write_text("\n".join(["image,caption,grade", *lines, ""]), "utf-8")
    return path


class Page(html.parser.HTMLParser):
    """Collects the elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


HOSTILE = '"><script>alert(1)</script><img src=x onerror="alert(2)">&amp;'


def test_the_annotation_page_escapes_all_text_and_loads_nothing():
    photo = datasets.encoded(datasets.picture(1, (300, 200)), "PNG")
    hostile = {
        name: f"{number}{HOSTILE}" for number, name in enumerate(("image", "caption", "text"))
    }
    entries = [
        {
            **hostile,
            "annotated": ["9" + HOSTILE],
            "score": 1.5,
            "picture": data_url(thumbnail(photo, "photo", 64), "image/jpeg"),
        },
        {"image": "plain", "caption": "1", "text": "two", "annotated": [], "score": -0.5},
    ]
    text = render(
        "annotation.html", title="title" + HOSTILE, entries=entries, command="merge" + HOSTILE
    ).decode()
    page = Page(text)
    assert page.all("script") == [{}]
    (image,) = page.all("img")
    assert image["src"].startswith("data:image/jpeg;base64,")
    assert image["alt"] == hostile["image"]
    assert not any(name.startswith("on") for _, a in page.elements for name in a)
    assert not page.all("link")
    assert "http:" not in text
    assert "https:" not in text
    assert [(p["data-image"], p["data-caption"]) for p in page.all("article")] == [
        (hostile["image"], hostile["caption"]),
        ("plain", "1"),
    ]
    seen = " ".join(page.text)
    for said in (hostile["text"], "9" + HOSTILE, "title" + HOSTILE, "merge" + HOSTILE, "1.50"):
        assert said in seen
    radios = [a["value"] for a in page.all("input") if a["type"] == "radio"]
    assert radios == 2 * ["right", "wrong"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs a JavaScript engine")
def test_what_the_button_saves_can_be_read(tmp_path):
    pairs = [
        {"image": IMAGES[2], "caption": "<3>", "label": "right", "grade": "0.5"},
        {"image": "a", "caption": "0", "label": "wrong", "grade": "1"},
        {"image": "a", "caption": "1", "label": None, "grade": "1"},
    ]
    templates = resources.files("keras_xmr.experiments.reports") / "templates"
    script = (templates / "annotation.js").read_text("utf-8")
    program = (
        "const nothing = {addEventListener() {}};"
        "globalThis.document = "
        "  {...nothing, getElementById: () => nothing, querySelectorAll: () => []};"
        "globalThis.window = nothing; globalThis.location = {};"
        f"(0, eval)({json.dumps(script)} + ';globalThis.labelsFile = labelsFile;');"
        f"const pairs = {json.dumps(pairs)}.map((p) => ({{"
        "  dataset: p,"
        "  querySelector: (q) => q.includes('number') ? {value: p.grade}"
        "    : p.label === null ? null : {value: p.label},"
        "}));"
        "process.stdout.write(labelsFile(pairs));"
    )
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    (tmp_path / "labels.csv").write_text(done.stdout)
    labels = read_graded_pairs(tmp_path / "labels.csv", IMAGES, CAPTIONS)
    assert np.argwhere(labels.judged.toarray()).tolist() == [[0, 0], [2, 3]]
    assert labels.grades.nnz == 1
    assert labels.grades[2, 3] == 0.5


@pytest.mark.slow
def test_a_folder_that_holds_no_run_is_told_before_tensorflow_is_imported(tmp_path):
    done = start("audit", "--run=saved_models/x", cwd=tmp_path)
    assert done.returncode == 2
    assert "holds no run" in done.stderr


def test_a_run_is_read_from_its_folder_whose_name_it_has(tmp_path):
    config = models.tiny_config(tmp_path)
    for folder in (config.folder, tmp_path / "renamed"):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(dump_config(config))
    assert load_run(config.folder) == config
    assert load_run(config.folder, ["audit.pairs=3"]).audit.pairs == 3
    copied = load_run(tmp_path / "renamed")
    assert (copied.name, copied.folder) == ("renamed", tmp_path / "renamed")
    assert copied.model == config.model
    with pytest.raises(ConfigError, match="a run has the name and the place of its folder"):
        load_run(config.folder, ["name=other"])
    former = dump_config(config).replace("name: soft_contrastive", "name: nt_xent")
    (config.folder / "config.yaml").write_text(former)
    with pytest.raises(
        ConfigError, match=r"'nt_xent'.* info_nce(.|\n)*another version .*train the run again"
    ):
        load_run(config.folder)


def test_a_folder_in_place_of_the_summary_of_a_training_is_said(tmp_path):
    config = models.tiny_config(tmp_path)
    (config.folder / "training.json").mkdir(parents=True)
    (config.folder / "config.yaml").write_text(dump_config(config))
    with pytest.raises(UserError, match=r"training\.json cannot be read: Is a directory"):
        load_run(config.folder)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_from_two_runs_to_amended_judgements(tmp_path, capsys, monkeypatch, trained):
    shared = (f"data.records={trained.config.data.records}", "audit.pairs=15", *models.POINTS)
    runs = [
        untrained(Experiment(models.tiny_config(tmp_path, f"name={name}", f"seed={seed}", *shared)))
        for seed, name in enumerate(("first", "second"))
    ]
    folders = [run.folder.path for run in runs]
    capsys.readouterr()
    audit_runs(runs[0].config, folders)
    printed = capsys.readouterr().out
    assert "15 unlabelled pairs with the highest scores" in printed
    folder = runs[0].folder.audit("test")

    part = runs[0].records.split("test")
    keys = [caption.key for caption in part.captions]
    truth = read_judgements(runs[0].records.folder / "test-truth.npz", part.image_keys, keys)
    with (folder / "candidates.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    places = [(part.image_keys.index(r["image"]), keys.index(r["caption"])) for r in listed]
    right = np.mean([truth.grades[place] > 0 for place in places])
    assert f"{100 * right:.1f} % of them are right" in printed
    assert not any(part.caption_image[caption] == image for image, caption in places)
    scores = [float(row["score"]) for row in listed]
    assert scores == sorted(scores, reverse=True)
    page = Page((folder / "sheet.html").read_text("utf-8"))
    assert [(p["data-image"], p["data-caption"]) for p in page.all("article")] == [
        (row["image"], row["caption"]) for row in listed
    ]
    assert len(page.all("img")) == 15

    first, second, third = ([row["image"], row["caption"]] for row in listed[:3])
    own = np.flatnonzero(part.caption_image == 0)[0]
    annotated = [part.image_keys[0], keys[own]]
    labels = ([*first, "0.5"], [*second, "0"], [*annotated, "0"])
    audit_runs(runs[0].config, labels=labels_file(tmp_path, *map(",".join, labels)))
    printed = capsys.readouterr().out
    assert "3 labels read, 1 of them right" in printed
    assert "24 right pairs before, 24 now" in printed
    labels = ([*second, "1"], [*third, "0"])
    audit_runs(runs[0].config, labels=labels_file(tmp_path, *map(",".join, labels)))
    assert "24 right pairs before, 25 now" in capsys.readouterr().out
    path = folder / "judgements-test.csv"
    amended = read_judgements(path, part.image_keys, keys).grades
    assert amended[places[0]] == 0.5
    assert amended[0, own] == 0
    assert path.read_text().splitlines()[0] == "image,caption,grade"
    before = path.read_bytes()
    with pytest.raises(JudgementsError, match="unknown image"):
        audit_runs(runs[0].config, labels=labels_file(tmp_path, "x,y,1"))
    with pytest.raises(UserError, match="has no labels: label pairs on the page"):
        audit_runs(runs[0].config, labels=labels_file(tmp_path))
    assert path.read_bytes() == before

    audit_runs(runs[0].config)
    with (folder / "candidates.csv").open(newline="") as file:
        again = [[row["image"], row["caption"]] for row in csv.DictReader(file)]
    assert len(again) == 15
    assert not any(pair in again for pair in (first, second, third, annotated))
    with pytest.raises(UserError, match="appears twice"):
        audit_runs(runs[0].config, [folders[0], folders[0]])
    monkeypatch.setattr("os.sysconf", lambda name: 16)
    with pytest.raises(UserError, match="their scores take"):
        audit_runs(runs[0].config, folders)
