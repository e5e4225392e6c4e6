"""Meanings of captions of the built-in synthetic data set, compared with results without arrays."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest

from data_pipelines.scenes.captions import describe
from data_pipelines.scenes.language import (
    PLACES,
    RELATIONS,
    Absent,
    Alike,
    Count,
    Description,
    Every,
    Extent,
    Meaning,
    OnBackground,
    Only,
    Related,
    Statement,
    Together,
    Without,
    say,
    truth_table,
)
from data_pipelines.scenes.world import BACKGROUNDS, VALUES, Scene, Scenes, Thing, sample_scene

KINDS = {Absent, Alike, Count, Every, OnBackground, Only, Related, Together, Without}

CIRCLE, SQUARE, STAR = (Description(shape=shape) for shape in ("circle", "square", "star"))
RED, BLUE = Description(colour="red"), Description(colour="blue")
RED_CIRCLE = Description(shape="circle", colour="red")


def random_scenes(count: int, seed: int = 7) -> list[Scene]:
    return [sample_scene(np.random.default_rng([seed, index])) for index in range(count)]


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return random_scenes(400)


@pytest.fixture(scope="module")
def statements(scenes: list[Scene]) -> list[Statement]:
    rng = np.random.default_rng(3)
    return [statement for scene in scenes for statement in describe(scene, 5, rng)]


def naive_fits(description: Description, thing: Thing) -> bool:
    """Whether a description fits one thing, without arrays."""
    for name in ("shape", "colour", "size"):
        if getattr(description, name) not in (None, getattr(thing, name)):
            return False
    place = description.place or ""
    if "middle" in place:
        return 0.35 <= thing.x <= 0.65 and 0.35 <= thing.y <= 0.65
    sides = {
        "left": thing.x <= 0.35,
        "right": thing.x >= 0.65,
        "top": thing.y <= 0.35,
        "bottom": thing.y >= 0.65,
    }
    return all(holds for side, holds in sides.items() if side in place.split())


def naive_together(descriptions: Sequence[Description], things: Sequence[Thing]) -> bool:
    """Backtracking: gives the first description each thing in turn, then the rest the rest."""
    if not descriptions:
        return True
    first, *rest = descriptions
    return any(
        naive_fits(first, thing) and naive_together(rest, [t for t in things if t is not thing])
        for thing in things
    )


def naive_related(meaning: Related, things: Sequence[Thing]) -> bool:
    for first, second in itertools.permutations(things, 2):
        ahead = {
            "left of": second.x - first.x,
            "right of": first.x - second.x,
            "above": second.y - first.y,
            "below": first.y - second.y,
        }[meaning.relation]
        fits = naive_fits(meaning.first, first) and naive_fits(meaning.second, second)
        if fits and ahead >= 0.12:
            return True
    return False


def naive_alike(meaning: Alike, things: Sequence[Thing]) -> bool:
    values = [getattr(thing, meaning.attribute) for thing in things]
    pairs = [one == other for one, other in itertools.combinations(values, 2)]
    if meaning.extent == "some":
        return any(pairs)
    return bool(pairs) and (all(pairs) if meaning.extent == "all" else not any(pairs))


def naive_truth(meaning: Meaning | None, scene: Scene) -> bool:
    things = scene.things
    match meaning:
        case None:
            return True
        case Together():
            return naive_together(meaning.descriptions, things)
        case Only():
            same_number = len(things) == len(meaning.descriptions)
            return same_number and naive_together(meaning.descriptions, things)
        case Count():
            return meaning.number == sum(naive_fits(meaning.description, t) for t in things)
        case Related():
            return naive_related(meaning, things)
        case Absent():
            return not any(naive_fits(meaning.description, thing) for thing in things)
        case Every():
            return all(getattr(thing, meaning.attribute) == meaning.value for thing in things)
        case Alike():
            return naive_alike(meaning, things)
        case OnBackground():
            return scene.background == meaning.background and naive_truth(meaning.content, scene)
        case Without():
            return naive_truth(meaning.content, scene) and naive_truth(meaning.absent, scene)
    raise AssertionError(f"no naive truth for {meaning}")


def simple_meanings() -> list[Meaning]:
    """Meanings of every kind that differ in one word, so that mixed-up words collide."""
    single = [Description(), CIRCLE, STAR, RED, BLUE, Description(size="small"), RED_CIRCLE]
    located = [dataclasses.replace(RED, place=place) for place in PLACES]
    pairs = list(itertools.product(single, repeat=2))
    return [
        *(kind((one,)) for kind in (Together, Only) for one in single + located),
        *(kind(pair) for kind in (Together, Only) for pair in pairs),
        *(Related(one, relation, two) for relation in RELATIONS for one, two in pairs),
        *(Count(number, one) for number in range(5) for one in single),
        *(Absent(one) for one in single),
        *(Every(attribute, value) for attribute in VALUES for value in VALUES[attribute]),
        *(Alike(attribute, extent) for attribute in VALUES for extent in get_args(Extent)),
        *(OnBackground(background) for background in BACKGROUNDS),
        *(OnBackground(background, Count(1, RED)) for background in BACKGROUNDS),
        *(Without(Together((one,)), Absent(two)) for one, two in pairs),
    ]


class TestLanguage:
    @pytest.mark.slow
    def test_vectorised_truth_is_the_naive_truth(
        self, scenes: list[Scene], statements: list[Statement]
    ) -> None:
        few = scenes[:60]
        assert {type(statement.meaning) for statement in statements} == KINDS
        packed = Scenes.from_scenes(few)
        for meaning in {statement.meaning for statement in statements}:
            expected = [naive_truth(meaning, scene) for scene in few]
            assert meaning.true_of(packed).tolist() == expected, meaning

    @pytest.mark.slow
    def test_a_text_has_one_meaning(self, scenes: list[Scene]) -> None:
        rng = np.random.default_rng(11)
        described = [s for scene in random_scenes(500, seed=5) for s in describe(scene, 5, rng)]
        systematic = [say(meaning, rng) for meaning in simple_meanings() for _ in range(12)]
        meanings: dict[str, set[Meaning]] = {}
        for statement in described + systematic:
            meanings.setdefault(statement.text, set()).add(statement.meaning)
        packed = Scenes.from_scenes(scenes)
        assert len(meanings) > 4000
        for text, several in meanings.items():
            if len(several) > 1:
                first, *others = (meaning.true_of(packed) for meaning in several)
                assert all(np.array_equal(first, other) for other in others), text

    def test_a_meaning_has_several_texts(self) -> None:
        rng = np.random.default_rng(0)
        texts = {say(Related(RED, "left of", CIRCLE), rng).text for _ in range(100)}
        assert {"a red shape left of a circle", "something red to the left of a circle"} <= texts

    @pytest.mark.parametrize(
        ("meaning", "text"),
        [
            (Together((RED_CIRCLE, RED_CIRCLE)), "a red circle and another red circle"),
            (Together((Description(shape="ring", colour="orange"), STAR, CIRCLE)), None),
            (Count(2, Description(shape="cross", colour="cyan")), "two cyan crosses"),
            (Count(1, CIRCLE), "exactly one circle"),
            (Related(STAR, "above", STAR), "a star above another star"),
            (Related(STAR, "above", CIRCLE), "a star higher than a circle"),
            (Related(STAR, "right of", CIRCLE), "a star to the right of a circle"),
            (Together((Description("ring", place="in the middle"),)), "a ring in the centre"),
            (Together((Description("ring", place="at the top"),)), "a ring near the top"),
            (Together((Description("ring", place="on the left"),)), "a ring on the left side"),
            (Absent(CIRCLE), "no circles"),
            (Absent(BLUE), "nothing blue"),
            (Every("shape", "ring"), "everything is a ring"),
            (Alike("colour", "all"), "two or more things, all of the same colour"),
            (Without(Together((RED_CIRCLE,)), Absent(STAR)), "a red circle but no stars"),
            (OnBackground("grey", Only((CIRCLE,))), "just a circle on a grey background"),
        ],
    )
    def test_wording(self, meaning: Meaning, text: str | None) -> None:
        rng = np.random.default_rng(0)
        texts = {say(meaning, rng).text for _ in range(100)}
        assert (text or "an orange ring, a star and a circle") in texts

    def test_table_evaluates_every_statement_on_every_scene(
        self, scenes: list[Scene], statements: list[Statement]
    ) -> None:
        packed = Scenes.from_scenes(scenes[:50])
        repeated = [*statements[:40], *statements[:3]]
        table = truth_table(repeated, packed).toarray()
        assert table.dtype == bool
        expected = np.stack([made.meaning.true_of(packed) for made in repeated], axis=1)
        assert np.array_equal(table, expected)
