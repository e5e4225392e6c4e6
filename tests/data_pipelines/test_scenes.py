"""The built-in synthetic data set: scenes, captions and pixels, and the source that offers them."""

import dataclasses
import io
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from data_pipelines.scenes.captions import LEVELS, describe
from data_pipelines.scenes.language import truth_table
from data_pipelines.scenes.world import (
    BACKGROUNDS,
    COLOURS,
    GAP,
    REACH,
    RGB,
    SHAPES,
    SIZES,
    Scene,
    Scenes,
    Shape,
    Size,
    Thing,
    draw,
    jpeg,
    sample_scene,
)
from data_pipelines.sources.base import (
    Entry,
    Problems,
)
from data_pipelines.sources.scenes import ScenesSource


def random_scenes(count: int, seed: int = 7) -> list[Scene]:
    return [sample_scene(np.random.default_rng([seed, index])) for index in range(count)]


def lone(shape: Shape, size: Size) -> Scene:
    """One red thing in the middle of a white picture."""
    return Scene("white", (Thing(shape, "red", size, 0.5, 0.5),))


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return random_scenes(400)


class TestWorld:
    def test_things_neither_touch_nor_leave_the_picture(self, scenes: list[Scene]) -> None:
        for scene in scenes:
            for thing in scene.things:
                border = REACH[thing.size] + GAP
                assert border <= min(thing.x, thing.y)
                assert max(thing.x, thing.y) <= 1 - border
            for one, other in itertools.combinations(scene.things, 2):
                distance = math.dist((one.x, one.y), (other.x, other.y))
                assert distance >= REACH[one.size] + REACH[other.size] + GAP

    def test_every_count_and_value_occurs(self, scenes: list[Scene]) -> None:
        things = [thing for scene in scenes for thing in scene.things]
        assert {len(scene.things) for scene in scenes} == {1, 2, 3, 4}
        assert {scene.background for scene in scenes} == set(BACKGROUNDS)
        assert {thing.shape for thing in things} == set(SHAPES)
        assert {thing.colour for thing in things} == set(COLOURS)
        assert {thing.size for thing in things} == set(SIZES)


class TestCaptions:
    @pytest.mark.parametrize("count", [1, 7, 10])
    def test_any_number_of_different_texts(self, scenes: list[Scene], count: int) -> None:
        rng = np.random.default_rng(count)
        for scene in scenes[:80]:
            texts = {statement.text for statement in describe(scene, count, rng)}
            assert len(texts) == count

    @pytest.mark.slow
    def test_every_maker_tells_the_truth(self, scenes: list[Scene]) -> None:
        rng = np.random.default_rng(1)
        for maker in itertools.chain(*LEVELS):
            said = 0
            for scene in scenes[:60]:
                meaning = maker(scene, rng)
                if meaning is not None:
                    said += 1
                    assert meaning.true_of(Scenes.from_scenes([scene])).all(), (meaning, scene)
            assert said > 0

    @pytest.mark.slow
    def test_captions_spread_from_exact_to_vague(self, scenes: list[Scene]) -> None:
        rng = np.random.default_rng(3)
        statements = [statement for scene in scenes for statement in describe(scene, 5, rng)]
        matches = truth_table(statements, Scenes.from_scenes(scenes)).sum(axis=0)
        few, many = np.mean(matches <= 2), np.mean(matches > 40)
        assert 0.25 < few < 0.45
        assert 0.25 < many < 0.45
        levels = np.median(matches.reshape(-1, 5), axis=0)
        assert np.all(np.diff(levels) >= 0)
        assert levels[0] == 1
        assert levels[-1] > 100


def nearest_name(pixel: np.ndarray) -> str:
    """Which of the named colours a pixel (3,) is closest to."""
    return min(RGB, key=lambda name: math.dist(RGB[name], pixel))


class TestPixels:
    @pytest.mark.parametrize("background", BACKGROUNDS)
    @pytest.mark.parametrize("colour", COLOURS)
    def test_colours_survive_jpeg(self, colour: str, background: str) -> None:
        for sampled in random_scenes(3):
            things = tuple(dataclasses.replace(thing, colour=colour) for thing in sampled.things)
            scene = Scene(background, things)
            pixels = np.asarray(Image.open(io.BytesIO(jpeg(scene, 64))))
            for thing in scene.things:
                # The centre of a ring is a hole; two thirds of the reach to the right is not.
                shift = 0.68 * REACH[thing.size] if thing.shape == "ring" else 0.0
                row, column = int(64 * thing.y), int(64 * (thing.x + shift))
                assert nearest_name(pixels[row, column]) == colour, thing
            assert nearest_name(pixels[0, 0]) == background
            assert nearest_name(pixels[-1, -1]) == background

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("size", SIZES)
    def test_shapes_stay_within_their_reach(self, shape: str, size: str) -> None:
        pixels = np.asarray(draw(lone(shape, size), 200))
        painted = np.any(pixels != RGB["white"], axis=2)
        y, x = (np.argwhere(painted) + 0.5).T / 200 - 0.5
        radii = np.hypot(x, y)
        assert radii.max() <= REACH[size] + 1 / 200
        assert radii.max() >= 0.85 * REACH[size]

    def test_shapes_and_sizes_look_different_at_64_pixels(self) -> None:
        drawn = {
            (shape, size): np.asarray(draw(lone(shape, size), 64), int)
            for shape in SHAPES
            for size in SIZES
        }
        for (one, first), (other, second) in itertools.combinations(drawn.items(), 2):
            changed = np.abs(first - second).max(axis=2) > 60
            assert changed.sum() >= 12, (one, other)


class TestSource:
    source = ScenesSource(train=30, val=20, test=40)

    def entries(self, **options: int) -> list[Entry]:
        source = self.source.model_copy(update=options)
        return list(source.entries(Problems()))

    def test_keys_splits_and_positions(self) -> None:
        entries = self.entries()
        assert [entry.split for entry in entries] == ["train"] * 30 + ["val"] * 20 + ["test"] * 40
        entry = entries[30 + 12]
        assert (entry.key, entry.position) == ("val/000012", 12)
        assert [c.key for c in entry.captions] == [f"val/000012/{n}" for n in range(5)]
        assert all(len({c.text for c in entry.captions}) == 5 for entry in entries)

    def test_a_seed_gives_the_same_data_and_another_one_other_data(self) -> None:
        again, other = (ScenesSource(seed=n, train=30, val=20, test=40) for n in (0, 1))
        here = self.entries()
        assert here == list(again.entries(Problems()))
        assert self._read(here) == self._read(here, again)
        assert here[0].captions != self.entries(seed=1)[0].captions
        assert not set(self._read(here)) & set(self._read(here, other))
        assert len(set(self._read(here))) == len(here)

    def test_a_scene_does_not_depend_on_how_many_there_are(self) -> None:
        few, many = self.entries(train=3, val=0, test=2), self.entries()
        assert few == [*many[:3], *many[50:52]]

    def test_scenes_do_not_depend_on_the_captions(self) -> None:
        wordy = ScenesSource(train=30, val=20, test=40, captions_per_image=9)
        entries = list(wordy.entries(Problems()))
        assert all(len(entry.captions) == 9 for entry in entries)
        assert self._read(entries, wordy) == self._read(self.entries())

    def test_images_are_jpegs_of_the_asked_size(self) -> None:
        source = ScenesSource(train=1, val=0, test=0, image_size=100)
        (entry,) = source.entries(Problems())
        picture = Image.open(io.BytesIO(source.read(entry).data))
        assert (picture.format, picture.size, picture.mode) == ("JPEG", (100, 100), "RGB")

    def test_truth_follows_the_captions_that_were_kept(self) -> None:
        entries = self.entries()[50:53]
        thinned = [
            Entry(e.key, e.split, e.captions[row : row + 2], position=e.position)
            for row, e in enumerate(entries)
        ]
        columns = [0, 1, 6, 7, 12, 13]
        whole = self.source.truth(entries).toarray()
        assert all(whole[row, 5 * row : 5 * row + 5].all() for row in range(3))
        assert np.array_equal(self.source.truth(thinned).toarray(), whole[:, columns])

    @pytest.mark.parametrize(
        ("option", "value"),
        [("train", -1), ("captions_per_image", 11), ("image_size", 31), ("images", 3)],
    )
    def test_impossible_options_are_refused(self, option: str, value: int) -> None:
        with pytest.raises(ValidationError, match=option):
            ScenesSource(**{option: value})

    def _read(self, entries: Sequence[Entry], source: ScenesSource | None = None) -> list[bytes]:
        return [(source or self.source).read(entry).data for entry in entries]
