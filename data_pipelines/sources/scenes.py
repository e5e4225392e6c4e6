"""Built-in synthetic data set: drawn scenes and captions with a computed, exhaustive truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import scipy.sparse
from pydantic import Field

from data_pipelines.sources.base import (
    SPLITS,
    Caption,
    EncodedImage,
    Entry,
    Problems,
    Source,
    Split,
)

if TYPE_CHECKING:
    from data_pipelines.scenes.language import Statement
    from data_pipelines.scenes.world import Scene

ImageCount = Annotated[int, Field(ge=0)]


class ScenesSource(Source):
    """Pictures of one to four shapes, with captions from exact to vague; nothing to download.

    A model trains on annotated pairs, as on any other data set, and is measured against every
    image that each caption is true of. A scene and its captions depend on the seed, the split
    and its number there, not on how many scenes there are.
    """

    name: Literal["scenes"] = "scenes"

    seed: int = Field(default=0, ge=0)
    """Another seed draws other scenes and captions."""

    train: ImageCount = 3000
    """Number of training images."""

    val: ImageCount = 500
    """Number of validation images."""

    test: ImageCount = 500
    """Number of test images."""

    captions_per_image: int = Field(default=5, ge=1, le=10)
    """Number of captions per image."""

    image_size: int = Field(default=64, ge=32, le=1024)
    """Width and height of the images, in pixels."""

    def entries(self, problems: Problems) -> Iterator[Entry]:
        """Yields the scenes of all splits."""
        del problems
        for split in SPLITS:
            for position in range(getattr(self, split)):
                key = f"{split}/{position:06d}"
                _, statements = self._described(split, position)
                captions = tuple(Caption(f"{key}/{n}", s.text) for n, s in enumerate(statements))
                yield Entry(key, split, captions, position=position)

    def read(self, entry: Entry) -> EncodedImage:
        """Draws the scene of an entry, as a JPEG file."""
        from data_pipelines.scenes.world import jpeg

        scene, _ = self._described(entry.split, entry.position)
        return EncodedImage(jpeg(scene, self.image_size))

    def truth(self, entries: Sequence[Entry]) -> scipy.sparse.csr_array:
        """Evaluates the captions of the entries on the scenes of the entries.

        Returns:
            A boolean matrix (images, captions), true where the caption is true of the scene.
        """
        from data_pipelines.scenes.language import truth_table
        from data_pipelines.scenes.world import Scenes

        scenes: list[Scene] = []
        statements: list[Statement] = []
        for entry in entries:
            scene, made = self._described(entry.split, entry.position)
            scenes.append(scene)
            statements.extend(
                made[int(caption.key.rpartition("/")[2])] for caption in entry.captions
            )
        return truth_table(statements, Scenes.from_scenes(scenes))

    def _described(self, split: Split, position: int) -> tuple[Scene, tuple[Statement, ...]]:
        return _described(self.seed, SPLITS.index(split), position, self.captions_per_image)


# The plan, the records and the ground truth each use every scene: the default number is cached.
@lru_cache(maxsize=4096)
def _described(
    seed: int, split: int, position: int, captions: int
) -> tuple[Scene, tuple[Statement, ...]]:
    """Returns a scene and its captions."""
    from data_pipelines.scenes.captions import describe
    from data_pipelines.scenes.world import sample_scene

    rng = np.random.default_rng([seed, split, position])
    scene = sample_scene(rng)
    return scene, tuple(describe(scene, captions, rng))
