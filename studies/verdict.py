"""Reliability of the verdict of a search on photos, from 500 of them to 100,000.

The model under test is that of a finished run on Flickr8K whose text encoder is frozen and averages
the words (`csv_pretrained` on the source flickr8k). The verdict is calibrated on the validation
split and its captions alone, as an index does it, and measured on one caption of each test photo:

* *Present*: the photo of the caption is in the gallery.
* *Absent*: it is not, nor is any photo whose captions resemble it, nor any that people said it
  describes. The largest similarity that may stay is the one below which fewer than 1 of 1,000
  judged pairs were right, by the last layer of the text encoder; *and near misses* also takes out
  what is similar by the model's own text embedding.
* *Written*: queries of this file, in galleries without photos whose captions have their key word.
* Counts are measured on the photos among the first 20 that people judged (the half of the captions
  whose judgements no constant was fitted on), and on all 20 by labels inferred from captions.

Galleries of 100,000 are simulated: the scores of a query with all photos are drawn with
replacement, with the tail of a generalised Pareto distribution.

    python studies/verdict.py --run=saved_models/flickr8k_pretrained
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from judged import known_pairs

from data_pipelines.records import SplitRecords
from keras_xmr.judgements.formats import read_ratings
from keras_xmr.search.calibration import embed_in_batches, embed_split_images, embed_texts
from keras_xmr.search.run_model import RunModel
from keras_xmr.search.verdict import (
    Background,
    SimilarityScale,
    VerdictModel,
    calibrate_verdict,
    caption_similarity,
    count_distribution,
    likely_right,
    unit_vectors,
)
from keras_xmr.search.vocabulary import ShortQueries, Vocabulary, short_queries, split_words
from keras_xmr.utils.errors import UserError
from keras_xmr.utils.vectors import Arrays, concatenate, select, split_items

SIZES = (500, 2000, 7996)
SIMULATED = 100_000
FIRST = 20
_TAIL = 40
_REFERENCE = 256

ABSENT = {
    "a giraffe in a zoo": "giraffe zoo",
    "an elephant drinking from a river": "elephant",
    "a zebra in the savannah": "zebra",
    "a penguin on the ice": "penguin",
    "a bowl of sushi": "sushi",
    "a pizza on a table": "pizza",
    "a birthday cake with candles": "cake candles",
    "an airplane in the sky": "airplane plane jet",
    "a helicopter landing": "helicopter",
    "a train at a station": "train",
    "a spreadsheet on a computer screen": "computer screen laptop",
    "a laptop on a desk": "laptop computer desk",
    "a microscope in a laboratory": "microscope",
    "a surgeon in an operating room": "surgeon doctor",
    "a spaceship orbiting mars": "spaceship",
    "an astronaut in a space suit": "astronaut",
    "a steam locomotive": "locomotive train",
    "a cathedral interior with stained glass": "cathedral church",
    "a castle on a hill": "castle sandcastle",
    "the eiffel tower at night": "eiffel tower",
    "a pyramid in the desert": "pyramid desert",
    "a volcano erupting": "volcano",
    "a lightning storm over a city": "lightning",
    "a full moon": "moon",
    "a tornado": "tornado",
    "a cactus in a pot": "cactus",
    "a bouquet of roses": "roses bouquet rose flowers",
    "a mushroom in the forest": "mushroom",
    "a spider in its web": "spider web",
    "a butterfly on a flower": "butterfly",
    "a goldfish in a bowl": "goldfish fish",
    "a parrot in a cage": "parrot",
    "a snake in the grass": "snake",
    "a shark under water": "shark",
    "a jellyfish": "jellyfish",
    "a polar bear": "bear",
    "a panda eating bamboo": "panda",
    "a tiger in a cage": "tiger",
    "a lion sleeping": "lion",
    "a kitten on a sofa": "kitten cat",
    "a newborn baby in a hospital": "newborn hospital",
    "a dentist with a patient": "dentist",
    "a wedding cake": "cake",
    "a chess board": "chess",
    "a grand piano": "piano",
    "a violin lying on a table": "violin",
    "a bookshelf full of books": "bookshelf books",
    "a chemistry formula on a blackboard": "blackboard",
    "a passport": "passport",
    "an invoice": "invoice",
    "a map of europe": "map",
    "a washing machine": "washing",
    "a refrigerator": "refrigerator fridge",
    "a kitchen sink": "sink kitchen",
    "an empty bathroom": "bathroom",
    "a bedroom with a bed": "bed bedroom",
    "a gas station": "gas",
    "a submarine": "submarine",
    "a wind turbine": "turbine windmill",
    "a bottle of red wine on a table": "wine",
}

NONSENSE = [
    "asdf qwer zxcv",
    "lorem ipsum dolor sit amet",
    "colorless green ideas sleep furiously",
    "xkcd 1234",
    "the square root of minus one",
    "blorp fizzle quanx",
    "quarterly revenue forecast",
    "happiness",
    "democracy",
    "tax return 2019",
    "invoice number 4711",
    "a theorem about prime numbers",
    "password",
    "the",
    "null pointer exception",
    "gdpr compliance",
    "interest rates",
    "philosophy of mind",
    "select star from users",
    "to be or not to be",
    "entropy",
    "monday",
    "import numpy as np",
    "hjkl",
    "http www example com",
]

FOREIGN = [
    "ein hund im schnee",
    "zwei hunde spielen im gras",
    "un chien dans la neige",
    "un niño en la playa",
    "ein mann auf einem fahrrad",
    "une fille sur une balançoire",
    "dos perros corriendo",
    "ein junge springt ins wasser",
    "un homme escalade un rocher",
    "un hombre en una bicicleta",
    "kinder spielen im wasser",
    "un surfeur sur une vague",
    "ein hund",
    "la playa",
    "der strand",
    "собака на снегу",
    "犬",
    "eine giraffe im zoo",
    "un gâteau d'anniversaire",
    "una pizza en la mesa",
]

SHORT = {
    "dog": "dog dogs puppy",
    "dogs in the snow": "dog dogs & snow snowy",
    "beach": "beach shore",
    "snow": "snow snowy",
    "a bicycle": "bicycle bike biker bikes cyclist bicyclist bmx",
    "climbing": "climbing climber climbs climb",
    "surfing": "surfing surfer surfboard surf surfs",
    "soccer": "soccer",
    "football players": "football",
    "swimming pool": "pool",
    "a boat": "boat boats canoe kayak raft",
    "motorcycle": "motorcycle motorbike motorcyclist dirtbike",
    "skateboard": "skateboard skateboarder skateboarding",
    "basketball": "basketball",
    "tennis": "tennis",
    "mountain": "mountain mountains",
    "water": "water lake ocean river pool sea",
    "children": "children kids child boy girl",
    "crowd": "crowd crowded",
    "horse": "horse horses",
    "a ball": "ball",
    "sand": "sand sandy beach",
    "swing": "swing swinging swings",
    "jumping": "jumping jumps jump leaps leaping",
    "grass": "grass grassy field",
    "baby": "baby infant toddler",
    "fountain": "fountain",
    "guitar": "guitar",
    "ice hockey": "hockey",
    "snowboarder": "snowboarder snowboarding snowboard snowboards",
    "skier": "skier skiing skiers ski",
    "bird": "bird birds seagull duck",
    "sunset": "sunset",
    "bench": "bench",
    "rock": "rock rocks rocky",
    "trampoline": "trampoline",
}


@dataclass(frozen=True, eq=False)
class Collection:
    """Photos with captions, judgements and the embeddings of the model under test."""

    model: Any
    images: Arrays
    captions: Arrays
    sentences: np.ndarray
    plain: np.ndarray
    photo_of: np.ndarray
    splits: np.ndarray
    texts: list[str]
    crowd: np.ndarray

    def photos(self, split: str) -> np.ndarray:
        """The rows of the photos of a split."""
        return np.flatnonzero(self.splits == split)

    def captions_of(self, photos: np.ndarray) -> np.ndarray:
        """The rows of the captions of photos."""
        return np.flatnonzero(np.isin(self.photo_of, photos))

    @cached_property
    def reference(self) -> np.ndarray:
        """Photos that scores are held against."""
        train = self.photos("train")
        return np.sort(np.random.default_rng(0).permutation(train)[:_REFERENCE])

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of training."""
        return Vocabulary.count(self.texts[c] for c in self.captions_of(self.photos("train")))

    @cached_property
    def words(self) -> list[set[str]]:
        """The words of the captions of each photo."""
        found: list[set[str]] = [set() for _ in self.splits]
        for photo, text in zip(self.photo_of.tolist(), self.texts, strict=True):
            found[photo] |= set(re.findall(r"\w+", text.lower()))
        return found

    def scores(self, queries: Arrays, photos: np.ndarray) -> np.ndarray:
        """Scores (queries, photos) by the model under test."""
        gallery = select(self.images, photos)
        parts = [self.model.score(gallery, part).T for part in split_items(queries, 256)]
        return np.concatenate(parts)

    def embed(self, texts: list[str]) -> Arrays:
        """Embeddings of texts by the model under test."""
        return embed_texts(self.model, texts)

    def has(self, words: str) -> np.ndarray:
        """Photos whose captions have a word of each group that `&` parts, bool (photos,)."""
        groups = [set(group.split()) for group in words.split("&")]
        return np.array([all(own & group for group in groups) for own in self.words])


def load(run: Path) -> Collection:
    """Embeds the photos and captions of all splits by the model of a run."""
    model = RunModel(run)
    config = model.config
    parts = {name: model.records.split(name) for name in ("train", "val", "test")}
    first = np.cumsum([0, *(len(part) for part in parts.values())])
    photo_of = [part.caption_image + at for part, at in zip(parts.values(), first, strict=False)]
    captions = [caption for part in parts.values() for caption in part.captions]
    features = [_caption_features(part) for part in parts.values()]
    encoder: Any = config.model.text.encoder
    width = (features[0].shape[2] - encoder.bag_of_words) // len(encoder.layers)
    embedded = embed_in_batches(model.embed_caption_features, np.concatenate(features), model)
    images = [embed_split_images(model, model.records, name) for name in parts]
    plain = np.concatenate(features)[:, 0, : width * len(encoder.layers)][:, -width:]
    keys = [key for part in parts.values() for key in part.image_keys]
    return Collection(
        model,
        concatenate(images),
        embedded,
        unit_vectors(embedded["mean"]),
        unit_vectors(plain),
        np.concatenate(photo_of),
        np.repeat(list(parts), [len(part) for part in parts.values()]),
        [caption.text for caption in captions],
        read_crowd(config.data.source, keys, [caption.key for caption in captions]),
    )


def _caption_features(part: SplitRecords) -> np.ndarray:
    """Features of the captions of a split, float32 (captions, 1, F)."""
    if part.caption_features is None:
        raise UserError("the run has no features of captions: train with train.precompute_captions")
    features = part.caption_features.read(np.arange(len(part.captions)))
    if features.shape[1] != 1:
        raise UserError("model.text.encoder.output of the run is not average")
    return features


def read_crowd(source: Any, photos: list[str], captions: list[str]) -> np.ndarray:
    """Photo, caption and grade above 0 of each pair that the crowd judged, (pairs, 3)."""
    ratings = read_ratings(source.judgement_files()["crowd"])
    number, photo, caption = known_pairs(ratings, photos, captions).T
    return np.stack([photo, caption, ratings.grades()[number] > 0], axis=1)


class Scores:
    """Scores of queries with photos, and what is known of them.

    Args:
        data: The collection.
        queries: Embeddings of the queries.
        texts: The queries.
        photos: Rows of the photos.
    """

    def __init__(
        self, data: Collection, queries: Arrays, texts: list[str], photos: np.ndarray
    ) -> None:
        self.raw = data.scores(queries, photos)
        self.reference = data.scores(queries, data.reference)
        self.words = np.array([len(split_words(text)) for text in texts])
        self.background = Background.fit(self.reference, self.words)
        mean, deviation = self.background.mean[:, None], self.background.deviation[:, None]
        self.standard = (self.raw - mean) / deviation


def similarity(
    data: Collection, vectors: np.ndarray, queries: np.ndarray, photos: np.ndarray
) -> tuple[np.ndarray, SimilarityScale]:
    """Similarity of captions with those of photos, and its scale between captions of one photo."""
    rows = data.captions_of(photos)
    number = np.searchsorted(photos, data.photo_of[rows])
    val = data.captions_of(data.photos("val"))
    scale = SimilarityScale.from_captions(vectors[val], data.photo_of[val])
    if scale is None:
        raise ValueError("no photo has two captions")
    return caption_similarity(vectors[queries], vectors[rows], number), scale


def cut(data: Collection) -> ShortQueries:
    """Short queries from the captions of the validation split."""
    photos = data.photos("val")
    rows = data.captions_of(photos)
    number = np.searchsorted(photos, data.photo_of[rows])
    return short_queries([data.texts[row] for row in rows], number)


def calibrated(data: Collection) -> VerdictModel:
    """The verdict by the validation split, as the index does it."""
    photos = data.photos("val")
    queries = data.captions_of(photos)
    own = np.searchsorted(photos, data.photo_of[queries])
    right, wrong = likely_right(*similarity(data, data.sentences, queries, photos))
    rows = np.arange(len(queries))
    right[rows, own], wrong[rows, own] = 1.0, False
    short = cut(data)
    vectors = concatenate([select(data.captions, queries), data.embed(short.texts)])
    texts = [*(data.texts[row] for row in queries), *short.texts]
    right = np.concatenate([right, short.right])
    wrong = np.concatenate([wrong, short.wrong])
    own = np.concatenate([own, short.photos])
    scores = Scores(data, vectors, texts, photos)
    is_caption = np.arange(len(texts)) < len(queries)
    found = calibrate_verdict(
        scores.raw, scores.reference, scores.words, right, wrong, own, is_caption
    )
    if found is None:
        raise ValueError("too few photos of validation")
    return found


class Test:
    """One caption of each test photo, all photos, and what is right of them.

    Args:
        data: The collection.
        limits: The largest similarity of a photo that may stay in a gallery without a right one;
            None for judged captions, whose judgements decide it. Otherwise captions are others.
    """

    def __init__(self, data: Collection, limits: dict[str, float] | None = None) -> None:
        random = np.random.default_rng(0)
        test = data.photos("test")
        self.data = data
        self.photos = np.concatenate([test, np.setdiff1d(np.arange(len(data.splits)), test)])
        self.test = len(test)
        order = np.argsort(self.photos)
        judged = np.unique(data.crowd[:, 1])
        rows = data.captions_of(test)
        chosen = {int(data.photo_of[c]): int(c) for c in random.permutation(rows)}
        if limits is None:
            chosen |= {int(data.photo_of[c]): int(c) for c in random.permutation(judged)}
        else:
            rest = random.permutation(np.setdiff1d(rows, judged))
            chosen |= {int(data.photo_of[c]): int(c) for c in rest}
        self.queries = np.array([chosen[p] for p in test.tolist()])
        texts = [data.texts[c] for c in self.queries]
        self.scores = Scores(data, select(data.captions, self.queries), texts, self.photos)
        ordered = np.arange(len(data.splits))
        plain, scale = similarity(data, data.plain, self.queries, ordered)
        own, own_scale = similarity(data, data.sentences, self.queries, ordered)
        at = self.photos
        self.plain = ((plain - scale.mean) / scale.deviation)[:, at]
        self.own = ((own - own_scale.mean) / own_scale.deviation)[:, at]
        self.right = likely_right(own, own_scale)[0][:, at]
        self.right[np.arange(self.test), np.arange(self.test)] = 1.0
        self.judged = np.full(self.plain.shape, np.nan, np.float32)
        query_of = {int(c): q for q, c in enumerate(self.queries)}
        place = np.empty_like(order)
        place[self.photos] = np.arange(len(order))
        for photo, caption, is_right in data.crowd.tolist():
            if caption in query_of:
                self.judged[query_of[caption], place[photo]] = is_right
        self.judged[np.arange(self.test), np.arange(self.test)] = 1.0
        self.is_checked = data.photo_of[self.queries] % 2 == 1
        self.limits = limits or {
            "similar": self._limit(self.plain),
            "and near misses": self._limit((self.plain + self.own) / 2),
        }

    def _limit(self, deviations: np.ndarray) -> float:
        """The similarity below which fewer than 1 of 1,000 judged pairs were right."""
        known = np.isfinite(self.judged) & ~self.is_checked[:, None]
        known[np.arange(self.test), np.arange(self.test)] = False
        values, right = deviations[known], self.judged[known]
        order = np.argsort(values)
        rate = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
        return float(values[order][np.flatnonzero(rate <= 0.001)[-1]])

    def gallery(self, query: int, size: int) -> np.ndarray:
        """Columns of a gallery with the query's photo: test photos, and then others."""
        random = np.random.default_rng((query, size))
        tests = np.delete(np.arange(self.test), query)
        if size <= self.test:
            return np.append(query, random.permutation(tests)[: size - 1])
        others = self.test + random.permutation(len(self.photos) - self.test)
        return np.concatenate([[query], tests, others[: size - self.test]])

    def absent(self, query: int, columns: np.ndarray, kind: str) -> np.ndarray:
        """Those of the columns that stay if nothing is to be right."""
        deviations = self.plain[query, columns]
        if kind == "and near misses":
            deviations = (deviations + self.own[query, columns]) / 2
        judged_right = np.nan_to_num(self.judged[query, columns]) > 0
        return columns[(deviations < self.limits[kind]) & ~judged_right]


def percent(happened: np.ndarray) -> str:
    """A rate with its 95 % interval (Wilson 1927)."""
    count, rate = len(happened), float(np.mean(happened))
    if not count:
        return ""
    centre = (rate + 1.92 / count) / (1 + 3.84 / count)
    half = 1.96 * np.sqrt(rate * (1 - rate) / count + 0.96 / count**2) / (1 + 3.84 / count)
    low, high = (100 * max(0.0, min(1.0, centre + sign * half)) for sign in (-1, 1))
    return f"{100 * rate:.1f} [{low:.1f}, {high:.1f}]"


def presence_table(model: VerdictModel, test: Test) -> list[str]:
    """The share of queries that are called absent, at several sizes."""
    kinds = list(test.limits)
    lines = [f"| photos | present | {' | '.join(f'absent: {k}' for k in kinds)} |"]
    lines.append("| ---: | ---: |" + " ---: |" * len(kinds))
    background = test.scores.background.features
    for size in SIZES:
        said: dict[str, list[bool]] = {kind: [] for kind in ("present", *kinds)}
        for query in range(test.test):
            columns = test.gallery(query, size)
            scores = test.scores.standard[query]
            best = float(scores[columns].max())
            said["present"].append(model.is_absent(best, background[query], size))
            for kind in kinds:
                left = test.absent(query, columns, kind)
                best = float(scores[left].max())
                said[kind].append(model.is_absent(best, background[query], len(left)))
        lines.append(
            f"| {size:,} | " + " | ".join(percent(np.array(v)) for v in said.values()) + " |"
        )
    simulated = [percent(np.array(v)) for v in simulate_presence(model, test)]
    lines.append(f"| {SIMULATED:,}, simulated | {' | '.join(simulated[:3])} |")
    lines.append(f"| {SIMULATED:,}, one relevant photo | {simulated[3]} | | |")
    return lines


def draw_largest(
    scores: np.ndarray, count: int, shape: float, random: np.random.Generator
) -> np.ndarray:
    """The largest of `count` draws with replacement, with a smooth tail above the 40th largest.

    The tail is a generalised Pareto distribution (Pickands 1975) whose mean is that of the scores.

    Args:
        scores: Of a query with photos.
        count: How many are drawn.
        shape: Of the tail.
        random: Draws.
    """
    ordered = np.sort(scores)[::-1]
    level, above = ordered[_TAIL], ordered[:_TAIL] - ordered[_TAIL]
    drawn = random.random(random.binomial(count, _TAIL / len(ordered)))
    excess = above.mean() * (1 - shape) * (drawn**-shape - 1) / shape
    return np.sort(np.concatenate([level + excess, ordered[_TAIL : 2 * _TAIL]]))[::-1]


def tail_shape(test: Test) -> float:
    """The shape of the tail of scores of wrong photos, by moments (Hosking and Wallis 1987)."""
    found = []
    for query in range(test.test):
        left = test.absent(query, np.arange(len(test.photos)), "similar")
        ordered = np.sort(test.scores.standard[query, left])[::-1]
        found.append(ordered[:_TAIL] - ordered[_TAIL])
    excess = np.array(found)
    mean, variance = (excess.mean(axis=1) ** 2).mean(), excess.var(axis=1).mean()
    return float(0.5 * (1 - mean / variance))


def simulate_presence(model: VerdictModel, test: Test) -> list[list[bool]]:
    """Present, absent by each kind, and one right photo alone, among 100,000."""
    random, shape = np.random.default_rng(1), tail_shape(test)
    found: list[list[bool]] = [[], [], [], []]
    background, everything = test.scores.background.features, np.arange(len(test.photos))
    for query in range(test.test):
        scores = test.scores.standard[query]
        columns = np.append(query, np.delete(everything, query))
        left = [test.absent(query, columns, kind) for kind in test.limits]
        absent = [draw_largest(scores[some], SIMULATED, shape, random)[0] for some in left]
        best = draw_largest(scores, SIMULATED, shape, random)[0]
        one = max(scores[query], absent[0])
        for said, value in zip(found, (max(best, scores[query]), *absent, one), strict=True):
            said.append(model.is_absent(float(value), background[query], SIMULATED))
    return found


def count_table(model: VerdictModel, test: Test) -> list[str]:
    """Coverage of the intervals of the count of relevant photos."""
    head = (
        "| photos | judged | relevant | stated | within "
        "| relevant of 20, by captions | stated | within |"
    )
    lines = [head, "| ---: |" + " ---: |" * 7]
    for size in SIZES:
        judged, labelled = [], []
        for query in range(test.test):
            columns = test.gallery(query, size)
            scores, background = test.scores.standard[query], test.scores.background.features[query]
            top = columns[np.argsort(-scores[columns])[:FIRST]]
            best = float(scores[top[0]])
            if model.is_absent(best, background, size):
                continue
            chances = model.probabilities(scores[top], background, size)
            known = np.isfinite(test.judged[query, top])
            if known.any() and test.is_checked[query]:
                count, right = model.count(chances[known]), test.judged[query, top][known].sum()
                within = count.low <= right <= count.high
                judged.append((known.sum(), right, count.expected, within, count.high - count.low))
            count, right = model.count(chances), test.right[query, top]
            likely = count_distribution(right)[count.low : count.high + 1].sum()
            labelled.append((right.sum(), count.expected, likely, count.high - count.low))
        one, all_ = np.array(judged, float), np.array(labelled)
        within = f"{100 * all_[:, 2].mean():.1f}"
        cells = [*(f"{v:.2f}" for v in one[:, :3].mean(axis=0)), percent(one[:, 3])]
        cells += [f"{all_[:, 0].mean():.2f}", f"{all_[:, 1].mean():.2f}", within]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
        print(f"  mean widths {one[:, 4].mean():.2f}, {all_[:, 3].mean():.2f}", file=sys.stderr)
    return lines


def written_table(model: VerdictModel, test: Test) -> list[str]:
    """The verdicts on the queries of this file."""
    data = test.data
    lines = ["| queries | photos | called absent | words unknown | either |"]
    lines.append("| --- | ---: | ---: | ---: | ---: |")
    kinds = {"absent": list(ABSENT), "nonsense": NONSENSE, "foreign": FOREIGN, "short": list(SHORT)}
    for kind, texts in kinds.items():
        scores = Scores(data, data.embed(texts), texts, test.photos)
        unknown = np.array([bool(data.vocabulary.unfamiliar(text)) for text in texts])
        for size in SIZES:
            called, asked = [], []
            for query, text in enumerate(texts):
                columns = test.gallery(query, size)
                there = data.has({**ABSENT, **SHORT}.get(text, "-"))[test.photos[columns]]
                if kind == "absent":
                    columns = columns[~there]
                asked.append(kind != "short" or there.any())
                best = float(scores.standard[query, columns].max())
                called.append(model.is_absent(best, scores.background.features[query], size))
            some = np.array(asked)
            said, blind = np.array(called)[some], unknown[some]
            cells = [percent(each) for each in (said, blind, said | blind)]
            lines.append(f"| {kind} ({some.sum()}) | {size:,} | {' | '.join(cells)} |")
    return lines


def short_counts(model: VerdictModel, test: Test) -> list[str]:
    """Counts of short queries, whose right photos have one of their words in a caption."""
    data, lines = (
        test.data,
        ["| photos | relevant of 20 | stated | within |", "| ---: |" + " ---: |" * 3],
    )
    scores = Scores(data, data.embed(list(SHORT)), list(SHORT), test.photos)
    for size in SIZES:
        found = []
        for query, words in enumerate(SHORT.values()):
            columns = test.gallery(query, size)
            there, background = data.has(words)[test.photos], scores.background.features[query]
            own = scores.standard[query]
            top = columns[np.argsort(-own[columns])[:FIRST]]
            if model.is_absent(float(own[top[0]]), background, size):
                continue
            chances = model.probabilities(own[top], background, size)
            count, right = model.count(chances), int(there[top].sum())
            found.append((right, count.expected, count.low <= right <= count.high))
        rows = np.array(found, float)
        cells = [f"{rows[:, 0].mean():.1f}", f"{rows[:, 1].mean():.1f}", percent(rows[:, 2])]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="a finished run on flickr8k")
    data = load(parser.parse_args().run)
    model, test = calibrated(data), Test(data)
    print(f"spread {model.spread:.1f}, share {model.share:.4f}, limits {test.limits}", flush=True)
    for lines in (
        presence_table(model, test),
        count_table(model, test),
        written_table(model, test),
        short_counts(model, test),
    ):
        print("\n".join(["", *lines]), flush=True)
    others = presence_table(model, Test(data, test.limits))
    print("\n".join(["\nOther captions of the same photos", "", *others]), flush=True)


if __name__ == "__main__":
    main()
