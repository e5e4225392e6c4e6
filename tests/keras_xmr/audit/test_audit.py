"""Missing labels: candidates, the annotation page, labels, and how right the candidates are."""

from __future__ import annotations

import csv
import html.parser
import json
import shutil
import subprocess
from dataclasses import replace
from importlib import resources

import datasets
import models
import numpy as np
import pytest
import scipy.sparse
from command_line import start
from tiny_runs import untrained

from data_pipelines.pixels import thumbnail
from keras_xmr.audit.audit import Entry, write_annotation_page
from keras_xmr.audit.candidates import (
    Candidates,
    Vote,
    belief_matrix,
    find_candidates,
    measure_precision,
    precision_table,
    vote,
)
from keras_xmr.audit.labels import (
    Label,
    judged_pairs,
    merge,
    read_labels,
    write_judgements,
    write_labels,
)
from keras_xmr.commands._steps import Run
from keras_xmr.commands.audit import audit_runs
from keras_xmr.config.loader import ConfigError, dump_config
from keras_xmr.config.schema import AuditOptions
from keras_xmr.evaluation.reporting.pages import data_url
from keras_xmr.judgements import GroundTruth, Judgements, JudgementsError, read_judgements
from keras_xmr.metrics import ScoreMatrices
from keras_xmr.runs.folder import load_run
from keras_xmr.utils.errors import UserError

IMAGES, CAPTIONS = ["a", "b", 'c,"1"'], ["0", "1", "2", "<3>"]
ANNOTATED = Judgements.from_grades(
    np.array([[0, 0], [1, 1], [2, 2]]), np.array([1, 0.7, 1]), (3, 4)
)
TRUTH = GroundTruth(IMAGES, CAPTIONS, np.array([0, 1, 2, 0]), ANNOTATED)


def judged(random, shape, right=0.1, wrong=0.05):
    """Some pairs that are judged right, and some that are judged wrong."""
    draw = random.random(shape)
    rows, columns = np.nonzero(draw < right + wrong)
    grades = (draw[rows, columns] < right).astype(np.float32)
    return scipy.sparse.csr_array((grades, (rows, columns)), shape=shape)


def brute_lead(scores, right, known, query, candidate):
    """log2(a / r) of one candidate of one query, by counting."""
    unlabelled = [s for s, k in zip(scores[query], known[query], strict=True) if not k]
    rank = sum(s >= scores[query, candidate] for s in unlabelled)
    last = min(scores[query][right[query]], default=-np.inf)
    return np.log2(1 + sum(s > last for s in unlabelled)) - np.log2(rank)


def brute_leads(model, found):
    known = np.zeros(found.shape, bool)
    rows = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr))
    known[rows, found.indices] = True
    right = found.toarray() > 0
    by_image, by_caption = model.by_query
    belief = np.full(found.shape, -np.inf)
    for i, c in np.argwhere(~known):
        belief[i, c] = min(
            brute_lead(by_image, right, known, i, c),
            brute_lead(by_caption, right.T, known.T, c, i),
        )
    return belief


def standardised(model):
    sides = (model.image_to_text, model.text_to_image)
    return np.mean([(m - m.mean()) / m.std() for m in sides], axis=0)


def brute_candidates(belief, pairs, per_image, per_caption):
    """The greedy walk over all pairs, in falling belief, then by image and caption."""
    taken = []
    for flat in np.argsort(-belief.ravel(), kind="stable"):
        i, c = divmod(int(flat), belief.shape[1])
        full = (
            sum(i == t[0] for t in taken) == per_image
            or sum(c == t[1] for t in taken) == per_caption
        )
        if np.isfinite(belief[i, c]) and not full and len(taken) < pairs:
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


@pytest.mark.parametrize("combine", ["least", "mean"])
def test_belief_is_the_score_and_half_of_the_lead_over_what_is_right(some_models, random, combine):
    found = judged(random, (23, 31))
    found.data[found.indptr[4] : found.indptr[6]] = 0  # Two images without right answers.
    leads_of = [brute_leads(model, found) for model in some_models.values()]
    each = [standardised(m) + v / 2 for m, v in zip(some_models.values(), leads_of, strict=True)]
    expected = np.min(each, axis=0) if combine == "least" else np.mean(each, axis=0)
    belief = belief_matrix(some_models, found, combine)
    assert belief.dtype == np.float32
    np.testing.assert_allclose(belief, expected, atol=1e-5)
    places = np.argwhere(np.isfinite(expected))
    for name, own in zip(some_models, leads_of, strict=True):
        votes = vote(some_models[name], found, *places.T)
        scores, captions, right_captions, images, right_images = np.array(votes).T
        leads = np.log2(right_captions / captions), np.log2(right_images / images)
        np.testing.assert_allclose(np.minimum(*leads), own[tuple(places.T)], atol=1e-6)
        assert [v.agrees for v in votes] == (own[tuple(places.T)] > 0).tolist()
        np.testing.assert_array_equal(scores, some_models[name].image_to_text[tuple(places.T)])


@pytest.mark.parametrize(
    ("pairs", "per_image", "per_caption"), [(5, 1, 1), (40, 3, 2), (60, 50, 3), (9999, 50, 50)]
)
def test_candidates_are_those_of_a_walk_over_all_pairs(
    some_models, random, pairs, per_image, per_caption
):
    found = judged(random, (23, 31))
    # The coarse scores make many equal beliefs, so that their order is seen, too.
    for asked in ({"coarse": some_models["coarse"]}, some_models):
        options = AuditOptions(
            pairs=pairs, per_image=per_image, per_caption=per_caption, combine="least"
        )
        candidates = find_candidates(asked, found, options)
        belief = belief_matrix(asked, found, "least")
        expected = brute_candidates(belief, pairs, per_image, per_caption)
        taken = list(zip(candidates.images.tolist(), candidates.captions.tolist(), strict=True))
        assert taken == expected
        np.testing.assert_array_equal(candidates.belief, [belief[pair] for pair in expected])


def test_tiles_do_not_matter(some_models, random, monkeypatch):
    found = judged(random, (23, 31))
    options = AuditOptions(pairs=50, per_image=4, per_caption=4, combine="mean")
    whole = find_candidates(some_models, found, options)
    monkeypatch.setattr("keras_xmr.audit.candidates._ROWS", 5)
    tiled = find_candidates(some_models, found, options)
    np.testing.assert_array_equal(tiled.images, whole.images)
    np.testing.assert_array_equal(tiled.captions, whole.captions)
    np.testing.assert_array_equal(tiled.belief, whole.belief)


def test_a_model_that_tells_nothing_apart_believes_in_nothing(random):
    found = judged(random, (12, 9), right=0.3)
    flat = {"flat": ScoreMatrices(np.zeros((12, 9), np.float32))}
    options = AuditOptions(pairs=20, per_image=2, per_caption=2, combine="mean")
    candidates = find_candidates(flat, found, options)
    votes = vote(flat["flat"], found, candidates.images, candidates.captions)
    assert not any(each.agrees for each in votes)
    everything = scipy.sparse.csr_array(np.ones((12, 9), np.float32))
    assert len(find_candidates(flat, everything, options)) == 0


def test_a_hidden_label_is_found_and_a_near_miss_is_not(random):
    """Only what stands before an annotated answer is a candidate for a label."""
    scores = 0.01 * random.random((40, 40)).astype(np.float32)
    np.fill_diagonal(scores, 1)
    scores[3, 7] = scores[7, 7] + 0.5  # Caption 7 fits image 3 better than its own, and
    scores[3, 3] = 1.2  # better than its annotated caption does.
    scores[11, 12] = 0.9  # A near miss: the first of its row and column, but behind.
    own = Judgements.from_pairs(np.arange(40), 40).grades
    options = AuditOptions(pairs=3, per_image=1, per_caption=1, combine="mean")
    found = find_candidates({"m": ScoreMatrices(scores)}, own, options)
    assert (found.images[0], found.captions[0]) == (3, 7)
    assert found.belief[0] > 0
    first, second = vote(ScoreMatrices(scores), own, np.array([3, 11]), np.array([7, 12]))
    assert (first.agrees, second.agrees) == (True, False)
    assert (first.caption_rank, second.caption_rank) == (1, 1)
    assert (first.annotated_image_rank, second.annotated_image_rank) == (2, 1)


def test_scores_that_cannot_be_are_refused(random):
    found = judged(random, (4, 5))
    scores = np.zeros((4, 5), np.float32)
    scores[2, 3] = np.nan
    with pytest.raises(ValueError, match="image 2 and caption 3 is nan"):
        belief_matrix({"x": ScoreMatrices(scores)}, found, "mean")
    with pytest.raises(ValueError, match="scores of x have the shape"):
        belief_matrix({"x": ScoreMatrices(np.zeros((5, 4), np.float32))}, found, "mean")
    with pytest.raises(ValueError, match="no scores"):
        belief_matrix({}, found, "mean")


def test_precision_is_counted_and_chance_is_that_of_unlabelled_pairs(random):
    truth = random.random((30, 50)) < 0.2
    known = random.random((30, 50)) < 0.1
    images, captions = np.nonzero(~known)
    order = random.permutation(len(images))[:70]
    candidates = Candidates(images[order], captions[order], np.zeros(70, np.float32))
    rows, columns = np.nonzero(known)
    found = measure_precision(
        {"m": candidates},
        Judgements(scipy.sparse.csr_array(truth.astype(np.float32))),
        scipy.sparse.csr_array((np.zeros(len(rows)), (rows, columns)), shape=(30, 50)),
    )
    hits = truth[candidates.images, candidates.captions]
    assert found.shares["m"] == {n: pytest.approx(hits[:n].mean()) for n in (10, 20, 50, 70)}
    assert found.chance == pytest.approx(truth[~known].mean())
    text = str(precision_table("test", found))
    assert f"{100 * hits.mean():.1f}" in text
    assert f"{100 * found.chance:.1f}" in text


def test_pairs_that_people_called_wrong_are_not_asked_again(random):
    annotated = Judgements.from_pairs(np.array([0, 1, 2, 2]), 3)
    pairs, grades = np.array([[0, 1], [0, 3], [1, 1], [2, 0]]), np.array([2, 0, 0, 1])
    crowd = Judgements.from_grades(pairs, grades, (3, 4), fully_judged=False)
    found = judged_pairs([annotated, crowd], {(2, 0): Label("wrong"), (1, 3): Label("unsure")})
    rows = np.repeat(np.arange(3), np.diff(found.indptr))
    said = dict(
        zip(zip(rows.tolist(), found.indices.tolist(), strict=True), found.data, strict=True)
    )
    right, wrong = [(0, 0), (0, 1), (1, 1), (2, 2), (2, 3)], [(0, 3), (2, 0), (1, 3)]
    assert said == {pair: 2.0 if pair == (0, 1) else 1.0 for pair in right} | dict.fromkeys(
        wrong, 0
    )
    # Judgements that are complete say nothing of what is wrong: those pairs are asked.
    assert judged_pairs([annotated, crowd.with_unjudged_wrong()], {}).nnz == 6


def labels_file(tmp_path, *lines, name="labels.csv"):
    path = tmp_path / name
    path.write_text("\n".join(["image,caption,label,grade", *lines, ""]), "utf-8")
    return path


def test_marks_make_judgements_that_can_be_read(tmp_path):
    path = labels_file(
        tmp_path,
        "a,<3>,right,0.3",
        "a,1,wrong,",
        '"c,""1""",0,unsure,',
        "b,1,wrong,0",
        "b,0,right,",
    )
    labels = read_labels(path, TRUTH)
    assert labels == {
        (0, 3): Label("right", 0.3),
        (0, 1): Label("wrong"),
        (2, 0): Label("unsure"),
        (1, 1): Label("wrong"),
        (1, 0): Label("right", 1),
    }
    write_labels(tmp_path / "again.csv", labels, TRUTH)
    assert read_labels(tmp_path / "again.csv", TRUTH) == labels
    write_judgements(tmp_path / "judged.csv", labels, TRUTH)
    found = read_judgements(tmp_path / "judged.csv", IMAGES, CAPTIONS).grades.toarray()
    np.testing.assert_allclose(
        found, [[1, 0, 0, np.float32(0.3)], [1, 0, 0, 0], [0, 0, 1, 0]], rtol=1e-7
    )
    lines = (tmp_path / "judged.csv").read_text().splitlines()
    assert lines[:4] == ["image,caption,grade", "a,0,1", "a,1,0", "a,<3>,0.3"]
    assert len(lines) == 7, "what is only unsure is no judgement"
    # All that was labelled or annotated is not asked again; only right pairs are above 0.
    known = judged_pairs([ANNOTATED, Judgements.from_pairs(np.array([0, 0, 2, 2]), 3)], labels)
    assert known.nnz == 8
    np.testing.assert_allclose(
        known.toarray(), [[1, 0, 0, np.float32(0.3)], [1, 0, 0, 0], [0, 0, 1, 1]], rtol=1e-7
    )


def test_labels_of_odd_names_read_the_same(tmp_path):
    images, captions = ["a\rb.jpg", " a.jpg", "a.jpg", "a.jpg\u00a0"], ["1", "1 "]
    labels = {(i, i % 2): Label("right", 1.0) for i in range(4)}
    truth = replace(TRUTH, image_ids=images, caption_ids=captions)
    write_labels(tmp_path / "labels.csv", labels, truth)
    assert read_labels(tmp_path / "labels.csv", truth) == labels


def test_later_marks_count_and_what_changes_is_told():
    old = {(0, 0): Label("right", 1), (1, 1): Label("unsure"), (2, 2): Label("wrong")}
    new = {(1, 1): Label("right", 0.5), (2, 2): Label("wrong"), (3, 3): Label("right", 1)}
    labels, changed = merge(old, new)
    assert labels == {**old, **new}
    assert changed == {(1, 1): Label("unsure")}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["z,1,right,1"], "2: unknown image 'z'"),
        (["a,1,right,1", "a,9,wrong,"], "3: unknown caption '9'"),
        (["a,1,yes,1"], "2: the label is 'yes'; it should be right, wrong, unsure"),
        (["a,1,right,0"], "2: a pair that is right has the grade 0"),
        (["a,1,wrong,0.5"], "2: a pair that is wrong has the grade 0.5"),
        (["a,1,right,much"], "2: the grade is 'much'"),
        (
            ["a,1,right,1", "a,1,right,1", "a,1,wrong,"],
            r"4: .* labelled wrong here, and right \(1\)",
        ),
        (["a,1"], "2: 2 fields, not 4"),
    ],
)
def test_marks_that_cannot_be_name_file_and_line(tmp_path, lines, says):
    path = labels_file(tmp_path, *lines)
    with pytest.raises(JudgementsError, match=says) as error:
        read_labels(path, TRUTH)
    assert str(error.value).startswith(f"{path}:")
    path.write_text("image,caption,grade\n")
    with pytest.raises(JudgementsError, match="no column 'label'"):
        read_labels(path, TRUTH)


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


def test_the_annotation_page_escapes_all_text_and_loads_nothing(tmp_path):
    votes = {HOSTILE: Vote(0.5, 1, 4, 2, 9), "other": Vote(-3.25, 1200, 1, 1, 1)}
    photo = datasets.encoded(datasets.picture(1, (300, 200)), "PNG")
    picture = data_url(thumbnail(photo, "photo", 64), "image/jpeg")
    entries = [
        Entry(HOSTILE, "7" + HOSTILE, "8" + HOSTILE, ["9" + HOSTILE], 1.5, votes, picture),
        Entry("plain", "1", "two", [], -0.5, votes),
    ]
    path = tmp_path / "sheet.html"
    write_annotation_page(path, "title" + HOSTILE, entries, "merge" + HOSTILE)
    text = path.read_text("utf-8")
    # Some of the pairs are behind annotated ones: of these, the model does not agree.
    assert "rank them ahead" not in text
    assert "A model agrees" in text
    page = Page(text)
    assert len(page.all("script")) == 1
    assert page.all("script") == [{}]
    (image,) = page.all("img")
    assert image["src"].startswith("data:image/jpeg;base64,")
    assert image["alt"] == HOSTILE
    assert not any(name.startswith("on") for _, a in page.elements for name in a)
    assert not page.all("link")
    assert "http:" not in text
    assert "https:" not in text
    pairs = page.all("article")
    assert [(p["data-image"], p["data-caption"]) for p in pairs] == [
        (HOSTILE, "7" + HOSTILE),
        ("plain", "1"),
    ]
    seen = " ".join(page.text)
    for said in ("8" + HOSTILE, "9" + HOSTILE, "title" + HOSTILE, "merge" + HOSTILE, "1,200"):
        assert said in seen
    assert "1 of 2 models agree" in seen
    radios = [a["value"] for a in page.all("input") if a["type"] == "radio"]
    assert radios == 2 * ["right", "wrong", "unsure"]


def test_thumbnails_are_small_jpegs_of_any_picture():
    for kind, mode in (("JPEG", "CMYK"), ("PNG", "RGBA"), ("PNG", "P")):
        image = datasets.picture(3, (90, 50)).convert(mode)
        small = thumbnail(datasets.encoded(image, kind), "image", 30)
        with datasets.Image.open(datasets.io.BytesIO(small)) as found:
            assert found.format == "JPEG"
            assert found.size == (30, 17)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs a JavaScript engine")
def test_what_the_button_saves_can_be_read(tmp_path):
    pairs = [
        {"image": IMAGES[2], "caption": "<3>", "label": "right", "grade": "0.5"},
        {"image": "a", "caption": "0", "label": "wrong", "grade": "1"},
        {"image": "a", "caption": "1", "label": None, "grade": "1"},
        {"image": "b", "caption": "1", "label": "unsure", "grade": ""},
    ]
    templates = resources.files("keras_xmr.evaluation.reporting") / "templates"
    script = (templates / "annotation.js").read_text("utf-8")
    program = (
        "const nothing = {addEventListener() {}};"
        "globalThis.document = "
        "  {...nothing, getElementById: () => nothing, querySelectorAll: () => []};"
        "globalThis.window = nothing; globalThis.location = {};"
        f"(0, eval)({json.dumps(script)} + ';globalThis.marksFile = marksFile;');"
        f"const pairs = {json.dumps(pairs)}.map((p) => ({{"
        "  dataset: p,"
        "  querySelector: (q) => q.includes('number') ? {value: p.grade}"
        "    : p.label === null ? null : {value: p.label},"
        "}));"
        "process.stdout.write(marksFile(pairs));"
    )
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    (tmp_path / "labels.csv").write_text(done.stdout)
    assert read_labels(tmp_path / "labels.csv", TRUTH) == {
        (2, 3): Label("right", 0.5),
        (0, 0): Label("wrong"),
        (1, 1): Label("unsure"),
    }


@pytest.mark.slow
def test_a_folder_that_holds_no_run_is_told_before_tensorflow_is_imported(tmp_path):
    done = start("audit", "--run=saved_models/x", cwd=tmp_path)
    assert done.returncode == 2
    assert "holds no run" in done.stderr
    done = start("audit", "--labels=x.csv", cwd=tmp_path)
    assert "no run: use --run" in done.stderr


def test_a_run_is_read_from_its_folder_and_keeps_its_name(tmp_path):
    config = models.tiny_config(tmp_path)
    for folder in (config.folder, tmp_path / "renamed"):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(dump_config(config))
    assert load_run(config.folder) == config
    assert load_run(config.folder, ["audit.pairs=3"]).audit.pairs == 3
    with pytest.raises(ConfigError, match="holds the run 'scenes_pcme'"):
        load_run(tmp_path / "renamed")


@pytest.mark.slow
def test_from_two_runs_to_amended_judgements(tmp_path, capsys, monkeypatch):
    runs = [
        Run(
            models.tiny_config(
                tmp_path,
                f"name={name}",
                f"seed={seed}",
                "audit.pairs=15",
            )
        )
        for seed, name in enumerate(("first", "second"))
    ]
    runs[0].prepare()
    for run in runs:
        untrained(run)
    folders = [run.folder.path for run in runs]
    capsys.readouterr()
    audit_runs(runs[0].config, folders)
    printed = capsys.readouterr().out
    for text in (
        "all together",
        "second",
        "chance",
        "P@10",
        "ranked ahead of annotated pairs by 2 of 2",
    ):
        assert text in printed
    folder = runs[0].folder.audit("test")
    figures = json.loads((folder / "audit.json").read_bytes())
    assert set(figures["precision"]) == {"all together", "first", "second"}
    assert sum(figures["pairs_by_models_that_agree"]) == figures["pairs"] == 15

    part = runs[0].records.split("test")
    keys = [caption.key for caption in part.captions]
    truth = scipy.sparse.load_npz(tmp_path / "records" / "test-truth.npz").toarray() > 0
    with (folder / "candidates.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    places = [(part.image_keys.index(r["image"]), keys.index(r["caption"])) for r in listed]
    right = [bool(truth[place]) for place in places]
    assert figures["precision"]["all together"] == {
        "10": sum(right[:10]) / 10,
        "15": sum(right) / 15,
    }
    assert not any(part.caption_image[caption] == image for image, caption in places)
    page = Page((folder / "sheet.html").read_text("utf-8"))
    assert [(p["data-image"], p["data-caption"]) for p in page.all("article")] == [
        (row["image"], row["caption"]) for row in listed
    ]
    assert len(page.all("img")) == 15

    first, second, third = ([row["image"], row["caption"]] for row in listed[:3])
    path = labels_file(
        tmp_path, ",".join([*first, "right", "0.5"]), ",".join([*second, "unsure", ""])
    )
    audit_runs(runs[0].config, labels=path)
    assert "24 right pairs before, 25 now" in capsys.readouterr().out
    path = labels_file(tmp_path, ",".join([*second, "right", ""]), ",".join([*third, "wrong", ""]))
    audit_runs(runs[0].config, labels=path)
    printed = capsys.readouterr().out
    assert "unsure before, right (1) now" in printed
    assert "3 labels in all (2 right, 1 wrong, 0 unsure)" in printed
    amended = read_judgements(folder / "judgements-test.csv", part.image_keys, keys).grades
    assert amended.nnz == 26
    assert amended[places[0]] == 0.5

    audit_runs(runs[0].config)
    with (folder / "candidates.csv").open(newline="") as file:
        again = [[row["image"], row["caption"]] for row in csv.DictReader(file)]
    assert len(again) == 15
    assert not any(pair in again for pair in (first, second, third))
    with pytest.raises(UserError, match="appears twice"):
        audit_runs(runs[0].config, [folders[0], folders[0]])
    monkeypatch.setattr("os.sysconf", lambda name: 16)
    with pytest.raises(UserError, match="the scores of 2 models take"):
        audit_runs(runs[0].config, folders)
