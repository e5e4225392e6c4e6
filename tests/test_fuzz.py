"""Whatever comes in, nothing but errors with a name come out: few examples, or (heavy) many."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import datasets
import numpy as np
import pytest
import scipy.sparse

from data_pipelines.image_decoding import checked_jpeg
from data_pipelines.options import DataOptions, PrepareOptions
from data_pipelines.photo_files import UnreadableError
from data_pipelines.prepare import prepare
from data_pipelines.records import Records
from data_pipelines.text import SPECIAL, CaptionIds, WordTokenizer, count_words
from keras_xmr.experiments.evaluation.score_files import load_matrix
from keras_xmr.judgements import read_judgements
from keras_xmr.judgements.judgement_files import read_graded_pairs
from keras_xmr.utils.errors import UserError

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed (extra `dev`)")
st = hypothesis.strategies

TOKENIZER = WordTokenizer([*SPECIAL, *datasets.WORDS.split()], 20)
COUNTS = [10, pytest.param(300, marks=pytest.mark.heavy)]

# Where a file is cut, and what is put there in place of how much.
DAMAGE = st.tuples(
    st.floats(0, 1),
    st.integers(0, 40),
    st.one_of(st.binary(max_size=12), st.sampled_from([b"{", b'"', b"[" * 9000, b"9" * 30, b","])),
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a.jpg", "b.jpg", "", "c"]),
        st.sampled_from(["1", "2", "x"]),
        st.one_of(st.just(""), st.floats().map(str), st.text(max_size=5)),
    ),
    max_size=4,
)


def fuzz(check: Callable[..., None], count: int, *strategies: Any) -> None:
    """Checks many examples, the same ones each time."""
    settings = hypothesis.settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    settings(hypothesis.given(*strategies)(check))()


@contextlib.contextmanager
def named(what: object, kind: type[Exception] = UserError) -> Iterator[None]:
    """Lets errors of one kind pass that name what is wrong."""
    try:
        yield
    except kind as error:
        if str(what) not in str(error):
            raise


def damaged(content: bytes, damage: tuple[float, int, bytes]) -> bytes:
    place, length, put = damage
    start = int(place * len(content))
    return content[:start] + put + content[start + length :]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, *COUNTS[1:]])
def test_captions(count):
    def check(texts):
        ids = TOKENIZER(texts).numpy()
        assert ids.shape[0] == len(texts)
        assert ids.shape[1] <= TOKENIZER.max_words + 2
        assert ((ids >= 0) & (ids < len(TOKENIZER))).all()
        captions = CaptionIds.from_texts(texts, TOKENIZER)
        np.testing.assert_array_equal(captions.batch(np.arange(len(texts))), ids)
        assert all(word.strip() and found > 0 for word, found in count_words(texts).items())

    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
    fuzz(check, count, st.lists(text, min_size=1, max_size=4))


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_images(count):
    files = [
        datasets.encoded(datasets.picture(1), kind)
        for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP")
    ]

    def check(content, damage):
        with named("x ", UnreadableError):
            assert checked_jpeg(damaged(content, damage), "x").startswith(b"\xff\xd8")

    fuzz(check, count, st.sampled_from(files), DAMAGE)


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_records(count, tmp_path):
    options = DataOptions(
        source=datasets.csv_photos(tmp_path / "photos", images=12, captions=1),
        records=tmp_path / "records",
        prepare=PrepareOptions(workers=1),
    )
    prepare(options)
    names = sorted(path.name for path in options.records.iterdir())
    whole = {name: (options.records / name).read_bytes() for name in names}

    def check(name, damage):
        path = options.records / name
        path.write_bytes(damaged(whole[name], damage))
        with named(options.records):
            records = Records.open(options.records)
            for split in map(records.split, records.splits):
                read = [split.read(number) for number in range(len(split))]
                assert len(read) == len(split.image_keys)
            dict(records.word_counts())
        with named(options.records):
            prepare(options)
        for each, held in whole.items():
            (options.records / each).write_bytes(held)

    fuzz(check, count, st.sampled_from(names), DAMAGE)


@pytest.mark.parametrize("count", COUNTS)
def test_scores_of_other_models(count, tmp_path):
    buffers = io.BytesIO(), io.BytesIO()
    np.save(buffers[0], np.eye(3))
    np.savez(buffers[1], scores=np.eye(3, dtype=np.float32))

    def check(kind, damage):
        path = tmp_path / f"scores.{kind}"
        content = buffers[kind == "npz"].getvalue()
        path.write_bytes(damaged(content, damage))
        with named(path):
            assert load_matrix(path).ndim == 2

    fuzz(check, count, st.sampled_from(["npy", "npz"]), DAMAGE)


@pytest.mark.slow
@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.heavy)])
def test_every_byte_of_sparse_judgements(step, tmp_path):
    path = tmp_path / "judged.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(np.eye(3)))
    whole = path.read_bytes()
    for place in range(0, len(whole), step):
        for bit in range(8):
            value = bytes([whole[place] ^ 1 << bit])
            path.write_bytes(whole[:place] + value + whole[place + 1 :])
            with named(path):
                found = read_judgements(path, list("abc"), list("def"))
                np.testing.assert_array_equal(found.grades.toarray(), np.eye(3))


@pytest.mark.parametrize("count", COUNTS)
def test_labels_of_an_audit(count, tmp_path):
    path = tmp_path / "labels.csv"

    def check(rows, damage):
        lines = ["image,caption,grade", *(",".join(row) for row in rows)]
        text = "\n".join(lines).encode("utf-8", "replace")
        path.write_bytes(damaged(text, damage))
        with named(path):
            labels = read_graded_pairs(path, ["a.jpg", "b.jpg"], ["1", "2"])
            assert labels.shape == (2, 2)

    fuzz(check, count, ROWS, DAMAGE)
