"""File formats of public benchmarks with many relevant items."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data_pipelines.errors import UserError
from keras_xmr.judgements.relation import Judgements


@dataclass(frozen=True)
class Layout:
    """The columns of a CSV file of judgements.

    Attributes:
        name: The name of the benchmark.
        image: The column of the image, or of another retrieved item.
        caption: The column of the caption, or of its id.
        grade: The column of the grade; without it, every row is relevant.
        image_id: From the text of the image to its id.
        captions: From the text of the caption to the captions that it contains.
    """

    name: str
    image: str
    caption: str
    grade: str = "grade"
    image_id: Callable[[str], str] = str
    captions: Callable[[str], Sequence[str]] = lambda text: [text]


def _coco_id(url: str) -> str:
    """COCO's id of an image, from the name of its file; other names as they are."""
    match = re.search(r"(?:^|[/_])0*(\d+)\.jpg$", url)
    return match[1] if match else url


def _levels(hierarchy: str) -> list[str]:
    """The captions of a hierarchy, the most general one first."""
    return [level.strip() for level in hierarchy.split("=>")]


OWN = Layout("this project", "image", "caption")

BENCHMARKS = (
    # Alper and Averbuch-Elor 2024, data/hierarcaps_test.csv: id,captions,image_url, where captions
    # are "bird => blue bird => blue bird sitting on top of branch => ...".
    Layout("HierarCaps", "image_url", "captions", image_id=_coco_id, captions=_levels),
    # Vendrow et al. 2024, inquire_annotations.csv: a row per relevant image of a query, whose
    # text is in inquire_queries_*.csv.
    Layout("INQUIRE", "image_path", "query_id"),
    # Zhu et al. 2024, query_0_product_id_0.csv and the three like it: grades from 1 to 100.
    Layout("Marqo-GS", "product_id", "query", "score_linear"),
)


def find_layout(header: Sequence[str]) -> Layout:
    """The layout of a CSV file by its first line: `OWN`, unless it is that of a benchmark."""
    layouts = (OWN, *BENCHMARKS)
    return next((one for one in layouts if {one.image, one.caption} <= set(header)), OWN)


EXTENDED_COCO = ("eccv_caption", "cxc")
"""ECCV Caption (Chun et al. 2022) and Crisscrossed Captions (Parekh et al. 2021)."""


def extended_coco(name: str, image_ids: Sequence[str], caption_ids: Sequence[str]) -> Judgements:
    """Extended judgements of images and captions of COCO's test split (Karpathy's 5,000).

    The files come with the package `eccv_caption`. Only the judged images and captions are
    queries: 1,261 images and 1,332 captions in ECCV Caption. All are candidates. Relevant items
    outside of the candidates are left out: two captions of ECCV Caption are not in the test split.

    Args:
        name: One of `EXTENDED_COCO`.
        image_ids: COCO's ids of the images.
        caption_ids: COCO's ids of the captions.

    Raises:
        UserError: If the package is not installed, or the ids are not those of COCO's test
            split.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A warning about the missing `ujson`.
            from eccv_caption import Metrics
    except ImportError:
        raise UserError(
            f"the judgements {name!r} come with the package eccv_caption, which is not "
            "installed; pip install 'keras-xmr[eccv]'"
        ) from None
    files = Metrics()
    relation = files.eccv_gts if name == "eccv_caption" else files.cxc_gts
    image_of = {id_: number for number, id_ in enumerate(image_ids)}
    caption_of = {id_: number for number, id_ in enumerate(caption_ids)}
    # Pairs of which both ends are queries are the same in both directions: one relation holds both.
    pairs = {(str(i), str(c)) for i, captions in relation["i2t"].items() for c in captions}
    pairs |= {(str(i), str(c)) for c, images in relation["t2i"].items() for i in images}
    places = [(image_of[i], caption_of[c]) for i, c in pairs if i in image_of and c in caption_of]
    if not places:
        raise UserError(
            f"the judgements {name!r} name none of the images and captions: they are for COCO's "
            f"test split and use COCO's ids, such as image {next(iter(relation['i2t']))} and "
            f"caption {next(iter(relation['t2i']))}, but there are {image_ids[0]!r} and "
            f"{caption_ids[0]!r}"
        )
    shape = (len(image_ids), len(caption_ids))
    right = Judgements.from_grades(np.array(places), np.ones(len(places)), shape)
    return Judgements(
        right.grades,
        _query_mask(relation["i2t"], image_ids),
        _query_mask(relation["t2i"], caption_ids),
    )


def _query_mask(queries: Mapping[int, Sequence[int]], ids: Sequence[str]) -> np.ndarray:
    names = set(map(str, queries))
    return np.array([id_ in names for id_ in ids])
