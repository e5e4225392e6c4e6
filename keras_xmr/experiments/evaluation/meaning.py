"""The meaning of the figures of a report for the photos of its reader."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from data_pipelines.training_words import untrained_words

_SHOWN = 30

EVERYDAY = """
apple baby bag ball banana bathroom beach bear bed bedroom bench bicycle bike bird birthday boat
book bottle bowl box boy bread breakfast bridge bus bush cake camera candle car cat chair child
christmas church city cloud coat coffee cook couch cow cup dance desk dinner dog door dress
drink duck elephant family farm father fence field fire fish flag flower food forest friend
fruit garden giraffe girl glass grandmother grass guitar hat hill horse hospital house ice
island kitchen kite knife lake lamp laptop leaf library man map market meal mirror monkey moon
mother motorcycle mountain museum night ocean office orange painting park party people phone
piano pizza plane plant plate pool rain restaurant river road rock room rose sand sandwich
school sea sheep ship shirt shoe shop sign sister skis sky sleep smile snow sofa soup stairs
star station stone street sun sunset supermarket surf swim table tea teacher tent toilet tomato
tower toy train tree truck umbrella vegetable village wall water wedding window wine winter
woman zebra zoo
"""
"""Common English words of photos: things, places, animals, people, occasions."""

_ENGLISH = frozenset(["a", "an", "the", "in", "on", "of", "with", "and", "is", "are", "at"])


def meaning_lines(images: int, training_words: Mapping[str, int]) -> list[str]:
    """Says what the figures of a model that was trained are about, and for which words they fail.

    Args:
        images: Number of evaluated images.
        training_words: The words of the training captions, in lower case, with counts.
    """
    lines = [
        "These figures are about photos and words like the photos and captions of your training. "
        f"They were measured on {images:,} photos that the model had not seen. In a larger "
        "collection more photos are similar, so the right one comes first less often."
    ]
    if missing := missing_words(training_words):
        shown = ", ".join(missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        lines.append(
            f"{len(missing):,} of {len(EVERYDAY.split())} everyday words are in no training "
            f"caption: {shown}{more}. The model never saw these with a photo: results for them may "
            "be all wrong, and the figures do not count them."
        )
    return lines


def missing_words(training_words: Mapping[str, int]) -> list[str]:
    """Returns the everyday words that no training caption has; none if captions are not English.

    Args:
        training_words: The words of the training captions, in lower case, with counts.
    """
    known: Collection[str] = training_words.keys()
    total = sum(training_words.values())
    english = sum(count for word, count in training_words.items() if word in _ENGLISH)
    if english < total / 20:
        return []
    return [word for word in EVERYDAY.split() if untrained_words(word, known)]


def what_to_do(advice: Iterable[str], has_own_captions: bool) -> list[str]:
    """Returns what a reader can do now, in sentences.

    Args:
        advice: The most promising improvements.
        has_own_captions: Whether a user wrote the captions, and can change them.
    """
    if not has_own_captions:
        return list(advice)
    return [
        *advice,
        "Look at the worst queries: correct captions that are wrong or vague, caption more photos, "
        "and run the command `update`.",
        "For everyday words that your captions lack, search with a published model such as CLIP, "
        "which needs no captions, next to this one.",
    ]
