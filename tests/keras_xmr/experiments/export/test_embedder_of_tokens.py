"""Indexes of models that compare regions with words: their scores are those of evaluation."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
from models import tiny_config
from tiny_runs import untrained

from keras_xmr.experiments.build import restore_tokenizer
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import embed_split
from keras_xmr.experiments.experiment import Experiment
from keras_xmr.experiments.export.run_embedder import run_embedder
from keras_xmr.experiments.runs.loading import load_retriever
from keras_xmr.search import PhotoIndex, Query, Searcher
from keras_xmr.search.index_build import build_index

MATCHERS = {
    "scan": "{name: scan, smoothing: 9}",
    "naaf": "naaf",
    "imram": "{name: imram, steps: 2, smoothing: 9}",
    "saf": "{name: saf, similarity_dimension: 4}",
    "sgr": "{name: sgr, similarity_dimension: 4, steps: 2}",
    "sgraf": "{name: sgraf, similarity_dimension: 4, steps: 2}",
}
# SGRAF is the mean of both.
MARKS = {"saf": pytest.mark.heavy, "sgr": pytest.mark.heavy}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records that all runs share."""
    run = Experiment(tiny_config(tmp_path_factory.mktemp("records")))
    run.prepare()
    return run.config.data.records


@pytest.fixture(scope="module")
def exported():
    """Folders of runs whose towers are written; the towers of all runs differ in their weights."""
    return []


def experiment(folder, records, matcher: str) -> Experiment:
    return Experiment(
        tiny_config(
            folder,
            f"data.records={records}",
            "model.image.pooling=null",
            "model.image.head=tokens",
            "model.text.pooling=null",
            "model.text.head=tokens",
            f"model.matcher={matcher}",
            "objective=[{name: triplet, margin: 0.2}]",
            "evaluation.matchers=[]",
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("matcher", [pytest.param(m, marks=MARKS.get(m, ())) for m in MATCHERS])
def test_scores_of_an_index_are_those_of_evaluation(matcher, records, exported, tmp_path):
    run = experiment(tmp_path, records, MATCHERS[matcher])
    untrained(run)
    part = run.records.split("test")
    (tmp_path / "photos").mkdir()
    for number in range(len(part)):
        (tmp_path / "photos" / f"{number:03d}.jpg").write_bytes(part.encoded(number))
    embedder = run_embedder(run.folder.path, earlier=exported[0] if exported else None)
    exported.append(run.folder.path)
    build_index(embedder, (tmp_path / "photos").resolve(), tmp_path / "index")
    searcher = Searcher(PhotoIndex.open(tmp_path / "index"))
    text = part.captions[0].text
    found = searcher.search(Query(texts=(text,)), count=len(part))

    tokenizer = restore_tokenizer(run.config, run.folder.path)
    model = load_retriever(run.config, run.records, tokenizer)
    with graphs.eager():
        embedded = embed_split(model, part, tokenizer, run.config)
    tile = run.config.evaluation.tile
    expected = score_tiles(model.matcher, embedded.images, embedded.captions, tile).dense()
    scores = {int(hit.path[:3]): hit.score for hit in found.hits}
    np.testing.assert_allclose(
        [scores[number] for number in range(len(part))],
        expected.image_to_text[:, 0],
        rtol=1e-3,
        atol=1e-4,
    )
    assert np.ptp(list(scores.values())) > 1e-3
