"""Evaluates the trained model of a run, and computes what its evaluation needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from data_pipelines.sources import Split
from keras_xmr.experiments.config.model_facts import is_as_published
from keras_xmr.experiments.evaluation.baselines import add_baselines
from keras_xmr.experiments.evaluation.evaluate import evaluate_split
from keras_xmr.experiments.evaluation.inspection import compute_attention
from keras_xmr.experiments.evaluation.relevance_files import write_caption_relevance
from keras_xmr.experiments.evaluation.scoring import score_tiles
from keras_xmr.experiments.evaluation.split_embeddings import embed_split, embed_unknown
from keras_xmr.experiments.evaluation.split_evaluation import Evaluation
from keras_xmr.experiments.evaluation.tuning import search_scales
from keras_xmr.experiments.evaluation.uncertainty.damage import probe
from keras_xmr.experiments.reports.rerank_scales import scale_pictures, search_lines, search_tables
from keras_xmr.experiments.run_contents import RunContents
from keras_xmr.experiments.run_texts import meaning_of, next_steps, print_paragraphs, report
from keras_xmr.judgements import judge
from keras_xmr.metrics import ScoreMatrices

_LOGGER = logging.getLogger(__name__)


def evaluate_splits(run: RunContents, is_brief: bool = False) -> Iterator[str]:
    """Evaluates the splits of `evaluation.splits`, writes reports, and yields a text per split.

    Args:
        run: The run.
        is_brief: Whether a text has a summary in place of all tables.
    """
    config = run.config
    for split in config.evaluation.splits:
        _LOGGER.info("== evaluate: %s", split)
        model, records, tokenizer = run.retriever, run.embedded_records, run.tokenizer
        evaluation = evaluate_split(model, records, split, tokenizer, config)
        own_split, kept = (each.split(split) for each in (run.records, records))
        _add_baselines(run, evaluation)
        evaluation.attention = compute_attention(model, own_split, config, kept)
        if config.model.dimension == 2:
            evaluation.unknown = embed_unknown(model, tokenizer)
        if config.evaluation.report_card:
            evaluation.probes = probe(model, tokenizer, config, records, split, evaluation.embedded)
        meaning = meaning_of(config, run.folder, run.records, len(own_split))
        steps = next_steps(config, run.records, tokenizer, own_split)
        folder = run.folder.evaluation(split)
        yield report(evaluation, own_split, config, folder, meaning, steps, is_brief)


def _add_baselines(run: RunContents, evaluation: Evaluation) -> None:
    """Adds simpler models, whose options are chosen once per run."""
    # A published model may be measured on other data each time.
    is_trained = not is_as_published(run.config)
    kept = run.folder.kept_baseline() if is_trained else None
    chosen = add_baselines(evaluation, run.embedded_records, run.config, kept)
    if is_trained and chosen is not None and chosen != kept:
        run.folder.keep_baseline(chosen)


def score_split(run: RunContents, split: Split) -> ScoreMatrices:
    """Returns the scores of a split by the matcher of the model, as tiles."""
    own_split = run.embedded_records.split(split)
    embedded = embed_split(run.retriever, own_split, run.tokenizer, run.config)
    tile = run.config.evaluation.tile
    return score_tiles(run.retriever.matcher, embedded.images, embedded.captions, tile)


def tune_reranker(run: RunContents) -> None:
    """Searches the scales of fast re-ranking on the validation split, and prints the best."""
    _LOGGER.info("== tune the re-ranker: val")
    val = run.records.split("val")
    judgements = judge(run.config.data.judgements, val.caption_image, val.labels, len(val))
    search = search_scales(score_split(run, "val").dense(), judgements)
    tables = search_tables(search, f"val: fast re-ranking of {run.config.model.matcher.name}")
    print_paragraphs(*map(str, tables), "\n".join(search_lines(search)))
    folder = run.folder.evaluation("val")
    folder.mkdir(parents=True, exist_ok=True)
    for picture in scale_pictures(search):
        picture.write(folder)
        _LOGGER.info("picture: %s", folder / f"{picture.name}.png")


def write_relevance(run: RunContents) -> None:
    """Writes how relevant each caption of a split is to each image."""
    for split in run.config.evaluation.splits:
        _LOGGER.info("== relevance: %s", split)
        records = run.records.split(split)
        write_caption_relevance(
            records.image_keys,
            records.captions,
            records.caption_image,
            run.folder.relevance(split),
            run.config.relevance,
        )
