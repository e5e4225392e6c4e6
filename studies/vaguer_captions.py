"""Whether sigma grows along captions that say less and less.

Each chain has four captions, every one true of at least as many photos as the one before it. A
sigma that measures how vague a caption is grows at each step; by chance it does at half of them.
The interval is by bootstrap over chains.

    python studies/vaguer_captions.py --run=saved_models/flickr8k_pretrained
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
from intervals import Figure, mean

import keras_xmr

CHAINS = (
    (
        "a brown dog runs along a sandy beach with a red ball in its mouth",
        "a dog runs on a beach with a ball",
        "a dog outdoors",
        "an animal",
    ),
    (
        "two little girls in pink dresses jump on a trampoline in a garden",
        "two girls jump on a trampoline",
        "children playing",
        "people",
    ),
    (
        "a man in a yellow jacket skis down a steep snowy mountain",
        "a man skis down a mountain",
        "a person in the snow",
        "a person",
    ),
    (
        "a surfer in a black wetsuit rides a large green wave",
        "a surfer rides a wave",
        "a person in the water",
        "somebody outside",
    ),
    (
        "a boy in a blue shirt slides down a yellow slide at a playground",
        "a boy on a slide",
        "a child plays",
        "a child",
    ),
    (
        "three men in white uniforms play football on a muddy field",
        "men play football",
        "people doing sports",
        "people",
    ),
    (
        "an old woman with a red umbrella waits for a bus in the rain",
        "a woman with an umbrella",
        "a woman in the street",
        "a person",
    ),
    (
        "a black and white dog jumps over a striped hurdle at a dog show",
        "a dog jumps over a hurdle",
        "a dog jumps",
        "a dog",
    ),
    (
        "a rock climber in a green helmet hangs from a cliff above the sea",
        "a climber on a cliff",
        "a person climbs",
        "a person outdoors",
    ),
    (
        "a young couple sits on a wooden bench beside a lake at sunset",
        "a couple sits on a bench",
        "two people sit",
        "people",
    ),
    (
        "a man with a long grey beard plays a guitar on a street corner",
        "a man plays a guitar",
        "a musician",
        "a man",
    ),
    (
        "two brown horses gallop across a green meadow near a wooden fence",
        "two horses in a meadow",
        "horses",
        "animals",
    ),
    (
        "a toddler in a striped hat eats a chocolate ice cream at a table",
        "a toddler eats ice cream",
        "a small child eats",
        "a child",
    ),
    (
        "a cyclist in a red helmet jumps his mountain bike over a dirt ramp",
        "a cyclist jumps over a ramp",
        "a person on a bike",
        "a person",
    ),
    (
        "a group of hikers with large backpacks walks up a rocky trail",
        "hikers on a trail",
        "people walk outdoors",
        "people",
    ),
    (
        "a white bird with spread wings lands on a calm blue lake",
        "a bird lands on a lake",
        "a bird",
        "an animal",
    ),
    (
        "a girl with a pink helmet rides a small bicycle down a paved path",
        "a girl rides a bicycle",
        "a girl outside",
        "a girl",
    ),
    (
        "a basketball player in a white jersey dunks the ball in a crowded arena",
        "a basketball player with the ball",
        "a player",
        "a person",
    ),
    (
        "a woman in a black dress sings into a microphone on a dark stage",
        "a woman sings",
        "a performer on a stage",
        "a performer",
    ),
    (
        "two men in orange vests repair a railway track with heavy tools",
        "two men work on a track",
        "men at work",
        "men",
    ),
    (
        "a boy in red swimming trunks leaps from a rock into a clear river",
        "a boy leaps into a river",
        "a boy at the water",
        "a boy",
    ),
    (
        "a brown and white cow stands beside a broken red tractor on a farm",
        "a cow beside a tractor",
        "a farm animal",
        "an animal",
    ),
    (
        "a crowd in colourful costumes dances in a narrow street at night",
        "a crowd dances in a street",
        "a crowd",
        "people",
    ),
    (
        "a small grey cat sleeps on a folded blanket in front of a window",
        "a cat sleeps on a blanket",
        "a cat indoors",
        "an animal",
    ),
)


def growing_steps(log_variance: np.ndarray) -> list[Figure]:
    """The share of steps at which sigma grows: the first, second and third step, and all.

    Args:
        log_variance: Of the captions of each chain (chains, 4, D).

    Raises:
        ValueError: If the variances are not finite.
    """
    if not np.isfinite(log_variance).all():
        raise ValueError("some variances are not finite")
    grows = np.diff(log_variance.mean(axis=2), axis=1) > 0
    chains = np.repeat(np.arange(len(grows)), grows.shape[1])
    return [*(mean(step.astype(float)) for step in grows.T), mean(grows.ravel() * 1.0, chains)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="an exported run with a sigma")
    model = keras_xmr.load(parser.parse_args(arguments).run)
    found = model.embed_captions([caption for chain in CHAINS for caption in chain])
    if "log_variance" not in found:
        parser.error("the embeddings of this run have no variance")
    steps = growing_steps(found["log_variance"].reshape(len(CHAINS), 4, -1))
    print("| step | sigma grows, % |\n| --- | ---: |")
    for name, step in zip(("first", "second", "third", "all"), steps, strict=True):
        print(f"| {name} | {100 * step.value:.0f} [{100 * step.low:.0f}, {100 * step.high:.0f}] |")


if __name__ == "__main__":
    main()
