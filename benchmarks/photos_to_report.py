"""Processor time from photos to report, over that of the frozen encoders and the training steps.

Prepares, trains, evaluates with all of the report, and exports in one process and a new folder, as
`main.py --config` does; the export is not part of the whole. The encoders' own time is that of all
photos and captions in batches that are in memory already, measured in the same process afterwards;
that of the training steps is counted while they run. The rest is everything else: decoding,
starting, compiling, validation, evaluation, report, and features of damaged photos and of shortened
captions.

    python benchmarks/photos_to_report.py --config=flickr8k_pretrained --set data.source.root=FOLDER
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

from data_pipelines.batches import caption_batches, image_batches
from keras_xmr.commands._steps import Run
from keras_xmr.config.loader import find_config, load_config
from keras_xmr.runs.frozen_features import CaptionEncoder, ImageEncoder

_BATCHES = 6


class StepTimer(keras.callbacks.Callback):
    """Sums up the processor time of training steps.

    Attributes:
        seconds: The sum.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Starts the clock."""
        self.seconds -= time.process_time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stops it."""
        self.seconds += time.process_time()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs, and prints the parts of the time as a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="flickr8k_pretrained")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        sets = [f"data.records={folder}/records", f"output={folder}", *options.set]
        for part, seconds in measure(Run(load_config(find_config(options.config), sets))):
            print(f"| {part} | {seconds} |", flush=True)


def measure(run: Run) -> list[tuple[str, str]]:
    """The parts of the processor time of a run, in seconds, and their ratio."""
    steps = StepTimer()
    run.prepare()
    prepared = time.process_time()
    run.train([steps])
    trained = time.process_time()
    run.evaluate()
    whole = time.process_time()
    run.export()
    exported = time.process_time()
    photos, captions = _encoder_seconds(run)
    return [
        ("start and records", f"{prepared:.0f}"),
        ("features, training and validation", f"{trained - prepared:.0f}"),
        ("evaluation and report", f"{whole - trained:.0f}"),
        ("whole", f"{whole:.0f}"),
        ("export, in addition", f"{exported - whole:.0f}"),
        ("image encoder alone", f"{photos:.0f}"),
        ("text encoder alone", f"{captions:.0f}"),
        ("training steps", f"{steps.seconds:.0f}"),
        ("whole / (encoders and steps)", f"{whole / (photos + captions + steps.seconds):.3f}"),
    ]


def _encoder_seconds(run: Run) -> tuple[float, float]:
    """Processor time of the encoders for all photos and captions, extrapolated from batches."""
    config, records, found = run.config, run.records, []
    part, size = records.split("train"), config.evaluation.batch_size
    parts = [records.split(name) for name in records.splits]
    images = ImageEncoder(run.model.image_tower, records, config)
    texts = CaptionEncoder(run.model.text_tower, records, config, run.tokenizer)
    pixels = image_batches(part, config.data.image, size)
    words = caption_batches(list(part.texts), run.tokenizer, size)
    counts = (sum(len(p) for p in parts), sum(len(p.captions) for p in parts))
    for encode, batches, count in zip(
        (images.encode, texts.encode), (pixels, words), counts, strict=True
    ):
        seconds, number = 0.0, 0
        for batch in list(batches.take(_BATCHES)):
            encode(batch)
            begin = time.process_time()
            encode(batch)
            seconds += time.process_time() - begin
            number += len(batch)
        found.append(seconds / number * count)
    return found[0], found[1]


if __name__ == "__main__":
    main()
