"""Word vectors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from keras_xmr.encoders.base import Encoder, EncoderError, InputSpec
from keras_xmr.parts.contracts import EncoderContract
from keras_xmr.parts.option_types import BelowOne, PositiveInt
from keras_xmr.parts.tensors import Tensor
from keras_xmr.utils.progress import Progress


@dataclass(kw_only=True, eq=False)
class WordEmbedding(Encoder):
    """One learned vector per word, initialised by GloVe vectors if a file is named.

    Args:
        dimension: Width of the vectors.
        vectors: Text file of word vectors, as GloVe comes; null learns them from scratch.
        dropout: Part of the numbers that are dropped in training.
    """

    CONTRACT = EncoderContract(side="text", reads="words", width="dimension")

    dimension: PositiveInt = 300
    vectors: str | None = None
    dropout: BelowOne = 0.0

    def features(self, inputs: Tensor, spec: InputSpec) -> tuple[Tensor, Tensor | None]:
        """Embeds word ids (B, L), padded with 0, as vectors (B, L, dimension) and their
        mask (B, L).
        """
        layer = keras.layers.Embedding(
            len(spec.vocabulary),
            self.dimension,
            embeddings_initializer=keras.initializers.RandomUniform(-0.1, 0.1, seed=spec.seed),
            name="encoder",
        )
        features = layer(inputs)
        if self.vectors is not None and spec.pretrained:
            file = Path(self.vectors)
            vectors = initial_vectors(file, spec.vocabulary, self.dimension, spec.seed)
            layer.set_weights([vectors])
        if self.dropout:
            features = keras.layers.Dropout(self.dropout, seed=spec.seed, name="dropout")(features)
        return features, keras.ops.not_equal(inputs, 0)


_LOGGER = logging.getLogger(__name__)

_INITIAL_RANGE = 0.1
_KEY = "model.text.encoder.vectors"


def initial_vectors(path: Path, vocabulary: Sequence[str], dimension: int, seed: int) -> np.ndarray:
    """Returns vectors for a vocabulary: from a file where it has the word, drawn at random
    elsewhere.

    The file is streamed, only the vectors that are needed are kept. A word that it does not
    have is also looked up without hyphens, dots and apostrophes (Chun et al. 2021). The hit rate
    is logged.

    Args:
        path: A text file, one word and its numbers a line, as GloVe comes. A first line of
            two numbers, as word2vec and fastText write it, is passed over.
        vocabulary: Words by id; the first one is the padding, with a vector of zeros.
        dimension: Numbers a vector.
        seed: Seed of the vectors that are drawn, uniformly from -0.1 to 0.1.

    Returns:
        Vectors float32 (words, dimension).

    Raises:
        EncoderError: If the file is missing, or a vector in it has another length.
    """
    vectors = np.random.default_rng(seed).uniform(
        -_INITIAL_RANGE, _INITIAL_RANGE, (len(vocabulary), dimension)
    )
    vectors[0] = 0
    known = dict(_lines(path, {*vocabulary, *map(_strip, vocabulary)}, dimension))
    hits = 0
    for number, word in enumerate(vocabulary):
        vector = known.get(word, known.get(_strip(word)))
        if vector is not None:
            vectors[number] = vector
            hits += 1
    percent = 100 * hits / len(vocabulary)
    _LOGGER.info("%s: %d of %d words have a vector (%.1f %%)", path, hits, len(vocabulary), percent)
    if not hits:
        raise EncoderError(
            f"{_KEY}: {path} has no word of the vocabulary; is it a file of vectors?"
        )
    return vectors.astype(np.float32)


def _strip(word: str) -> str:
    return word.replace("-", "").replace(".", "").replace("'", "")


def _lines(path: Path, wanted: set[str], dimension: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the words that are wanted, and their vectors."""
    encoded = {word.encode() for word in wanted}
    try:
        size = path.stat().st_size
        file = path.open("rb")
    except OSError as error:
        raise EncoderError(f"{_KEY}: {path} cannot be read: {error.strerror}") from None
    with file, Progress(f"reading {path.name}", size, "B", unit_scale=True) as bar:
        for number, line in enumerate(file, 1):
            bar.update(len(line))
            word = line.partition(b" ")[0]
            if number > 2 and word not in encoded:
                continue
            numbers = line.split()[1:]
            if number == 1 and len(numbers) == 1:
                continue  # The header of word2vec and fastText: how many words, how many numbers.
            if len(numbers) > dimension and number > 2:
                continue  # Some entries of GloVe's largest file are phrases, "at name@domain.com".
            place = f"{_KEY}: {path}:{number}"
            if len(numbers) != dimension:
                raise EncoderError(
                    f"{place}: a vector of {len(numbers)} numbers, but the dimension of "
                    f"the word embedding is {dimension}"
                )
            try:
                vector = np.array(numbers, np.float64)
            except ValueError:
                raise EncoderError(f"{place}: not numbers: {line[:60]!r}") from None
            if word in encoded:
                yield word.decode(), vector
