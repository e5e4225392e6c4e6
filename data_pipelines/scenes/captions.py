"""Choice of statements about a scene, from exact to vague."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import numpy as np

from data_pipelines.scenes.language import (
    PLACES,
    RELATIONS,
    Absent,
    Alike,
    Content,
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
    is_at,
    is_related,
    say,
)
from data_pipelines.scenes.world import (
    COLOURS,
    SHAPES,
    VALUES,
    Attribute,
    Scene,
    Scenes,
    Thing,
    pick,
)

Maker = Callable[[Scene, np.random.Generator], Meaning | None]
"""Returns a true meaning about a scene, or None if the scene has none of its kind."""
ContentMaker = Callable[[Scene, np.random.Generator], Content | None]
"""Maker of content that can precede a background or an exception."""

_ATTRIBUTES: tuple[Attribute, ...] = tuple(VALUES)


def describe(
    scene: Scene,
    count: int,
    rng: np.random.Generator,
    levels: Sequence[Sequence[Maker]] | None = None,
) -> list[Statement]:
    """Makes statements that are true of a scene, spread evenly over levels of vagueness.

    Args:
        scene: The scene.
        count: Number of statements, from 1 to 10; of a single level at most 5.
        rng: Random generator of contents and words.
        levels: Some of `LEVELS`, in any order and number; None for all.

    Returns:
        Statements of different texts, the most exact first.
    """
    statements: dict[str, Statement] = {}
    levels = LEVELS if levels is None else levels
    for number in range(count):
        # The scale of levels in `count` equal shares, and a point at random within this share.
        share = len(levels) * number, len(levels) * (number + 1)
        level = levels[int(rng.integers(*share)) // count]
        statement = _new_statement(scene, level, statements, rng)
        statements[statement.text] = statement
    return list(statements.values())


def _new_statement(
    scene: Scene, level: Sequence[Maker], taken: Container[str], rng: np.random.Generator
) -> Statement:
    """Returns a statement of one level with a text that is not taken.

    Ends because a level serves at most five statements, and has more texts than that to say of any
    scene.
    """
    while True:
        meaning = pick(rng, level)(scene, rng)
        if meaning is not None:
            statement = say(meaning, rng)
            if statement.text not in taken:
                return statement


def _about(
    thing: Thing, rng: np.random.Generator, properties: int, place: str | None = None
) -> Description:
    """Returns a description of a thing by `properties` of its shape, colour and size, drawn at
    random.
    """
    kept = rng.permutation(len(_ATTRIBUTES))[:properties]
    chosen = [_ATTRIBUTES[index] for index in kept]
    return Description(**{name: getattr(thing, name) for name in chosen}, place=place)


def _places(thing: Thing) -> list[str]:
    return [place for place in PLACES if is_at(place, thing.x, thing.y)]


def _located(thing: Thing, rng: np.random.Generator, properties: int) -> Description:
    """Does as `_about`, with the most exact word for the place of the thing."""
    return _about(thing, rng, properties, _places(thing)[-1])


def _some_things(scene: Scene, rng: np.random.Generator, most: int | None) -> list[Thing]:
    """Returns up to `most` different things of the scene, in any order; None for all."""
    return [scene.things[index] for index in rng.permutation(len(scene.things))[:most]]


def _together(
    most: int | None,
    properties: int,
    about: Callable[[Thing, np.random.Generator, int], Description] = _about,
    group: type[Only | Together] = Together,
) -> ContentMaker:
    return lambda scene, rng: group(
        tuple(about(thing, rng, properties) for thing in _some_things(scene, rng, most))
    )


def _somewhere(properties: int) -> ContentMaker:
    """Returns one thing, with any word for its place."""

    def make(scene: Scene, rng: np.random.Generator) -> Content:
        thing = pick(rng, scene.things)
        return Together((_about(thing, rng, properties, pick(rng, _places(thing))),))

    return make


def _related(first_properties: int, second_properties: int) -> ContentMaker:
    def make(scene: Scene, rng: np.random.Generator) -> Content | None:
        if len(scene.things) < 2:
            return None
        first, second = _some_things(scene, rng, 2)
        dx, dy = second.x - first.x, second.y - first.y
        relations = [relation for relation in RELATIONS if is_related(relation, dx, dy)]
        return Related(
            _about(first, rng, first_properties),
            pick(rng, relations),
            _about(second, rng, second_properties),
        )

    return make


def _count(properties: int, least: int = 1) -> ContentMaker:
    """Returns how many things are like one of them, if there are at least `least`."""

    def make(scene: Scene, rng: np.random.Generator) -> Content | None:
        description = _about(pick(rng, scene.things), rng, properties)
        number = int(description.fits(Scenes.from_scenes((scene,))).sum())
        return Count(number, description) if number >= least else None

    return make


def _every(scene: Scene, rng: np.random.Generator) -> Meaning | None:
    first = scene.things[0]
    candidates = [Every(attribute, getattr(first, attribute)) for attribute in _ATTRIBUTES]
    return _one_true(candidates, scene, rng)


def _alike(*extents: Extent) -> Maker:
    candidates = [Alike(attribute, extent) for extent in extents for attribute in _ATTRIBUTES]
    return lambda scene, rng: _one_true(candidates, scene, rng)


def _one_true(
    candidates: Sequence[Meaning], scene: Scene, rng: np.random.Generator
) -> Meaning | None:
    alone = Scenes.from_scenes((scene,))
    true = [meaning for meaning in candidates if meaning.true_of(alone).all()]
    return pick(rng, true) if true else None


def _total(scene: Scene, rng: np.random.Generator) -> Content:
    return Count(len(scene.things), Description())


def _background(scene: Scene, rng: np.random.Generator) -> Meaning:
    return OnBackground(scene.background)


def _absent(scene: Scene, rng: np.random.Generator) -> Absent:
    """Returns the absence of one value that no thing of the scene has."""
    shapes = {thing.shape for thing in scene.things}
    colours = {thing.colour for thing in scene.things}
    missing = [Description(shape=shape) for shape in SHAPES if shape not in shapes]
    missing += [Description(colour=colour) for colour in COLOURS if colour not in colours]
    return Absent(pick(rng, missing))


def _on_background(content: ContentMaker) -> Maker:
    def make(scene: Scene, rng: np.random.Generator) -> Meaning | None:
        meaning = content(scene, rng)
        return None if meaning is None else OnBackground(scene.background, meaning)

    return make


def _without(content: ContentMaker) -> Maker:
    def make(scene: Scene, rng: np.random.Generator) -> Meaning | None:
        meaning = content(scene, rng)
        return None if meaning is None else Without(meaning, _absent(scene, rng))

    return make


EXACT: tuple[Maker, ...] = (
    _together(None, 3, _located, Only),
    _on_background(_together(None, 3, _located, Only)),
    _on_background(_together(None, 3, _about, Only)),
)
DETAILED: tuple[Maker, ...] = (
    _related(3, 3),
    _related(3, 2),
    _related(2, 3),
    _together(2, 3),
    _together(2, 3, _located),
    _on_background(_together(1, 3, _located)),
    _on_background(_related(2, 2)),
)
MIDDLING: tuple[Maker, ...] = (
    _related(2, 1),
    _related(1, 2),
    _together(2, 2),
    _together(3, 1),
    _together(1, 3),
    _together(1, 2, _located),
    _together(2, 1, _located),
    _on_background(_together(1, 2)),
    _count(2, least=2),
    _without(_together(2, 1)),
)
LOOSE: tuple[Maker, ...] = (
    _related(1, 1),
    _together(1, 2),
    _together(2, 1),
    _together(1, 1, _located),
    _somewhere(1),
    _count(1, least=2),
    _on_background(_together(1, 1)),
    _on_background(_total),
    _without(_total),
    _alike("all"),
    _every,
)
VAGUE: tuple[Maker, ...] = (
    _together(1, 1),
    _somewhere(0),
    _count(1),
    _total,
    _background,
    _absent,
    _without(_together(1, 1)),
    _alike("some", "none"),
)
LEVELS = (EXACT, DETAILED, MIDDLING, LOOSE, VAGUE)
"""Makers by how much they say, from statements that are true of one scene among thousands."""
