"""File formats of public benchmarks with many relevant items."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


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
    if OWN.image in header and OWN.caption in header:
        return OWN
    for layout in BENCHMARKS:
        if layout.image in header and layout.caption in header:
            return layout
    return OWN


def circo_pairs(content: Any) -> Iterator[tuple[str, str]]:
    """The ids of image and query of each relevant pair in annotations of CIRCO.

    A query is an image and a text on the wanted changes (Baldrati et al. 2023); its id is that of
    the annotation.

    Args:
        content: The content of `annotations/val.json`; the test split has no answers.

    Raises:
        KeyError, TypeError: If the content has another structure.
    """
    for annotation in content:
        for image in annotation["gt_img_ids"]:
            yield str(image), str(annotation["id"])
