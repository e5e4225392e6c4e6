"""What people judged of Flickr8K, on small files of its layout."""

from __future__ import annotations

import json

import datasets
import numpy as np
import pytest

from keras_xmr.experiments.config.loader import load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.experiments.runs.loading import check_files
from keras_xmr.judgements import (
    GroundTruth,
    JudgementOptions,
    Judgements,
    JudgementsError,
    add_judgements,
    read_judgements,
)
from keras_xmr.utils.errors import ConfigError

PHOTOS = ["a.jpg", "b.jpg", "c.jpg"]
CAPTIONS = ["a.jpg#0", "a.jpg#2", "b.jpg#2", "c.jpg#2"]
OWNER = np.array([0, 0, 1, 2])

EXPERTS = """\
a.jpg\tb.jpg#2\t1\t3\t4
a.jpg\tc.jpg#2\t4\t4\t3
b.jpg\tb.jpg#2\t2\t2\t4
b.jpg\tc.jpg#2\t1\t2\t2
b.jpg\td.jpg#2\t4\t4\t4
"""
CROWD = """\
a.jpg\ta.jpg#2\t1\t3\t0
a.jpg\tb.jpg#2\t0.666666667\t2\t1
b.jpg\ta.jpg#2\t0.5\t2\t2
c.jpg\tb.jpg#2\t0\t0\t3
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="judged.txt"):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


def known():
    return GroundTruth(PHOTOS, CAPTIONS, OWNER, Judgements.from_pairs(OWNER, 3))


def test_the_median_of_the_experts_is_right_from_3_on(write):
    found = read_judgements(write(EXPERTS), PHOTOS, CAPTIONS)
    np.testing.assert_array_equal(found.grades.toarray(), [[0, 0, 1, 2], [0] * 4, [0] * 4])
    np.testing.assert_array_equal(
        found.judged.toarray(), [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(found.image_query_mask, [True, True, False])
    np.testing.assert_array_equal(found.caption_query_mask, [False, False, True, True])


def test_more_yes_than_no_is_right_and_a_tie_is_not(write, caplog):
    with caplog.at_level("INFO", "keras_xmr"):
        found = read_judgements(write(CROWD), PHOTOS, CAPTIONS)
    assert "1 pairs with as many yes as no" in caplog.text
    np.testing.assert_array_equal(found.grades.toarray(), [[0, 2, 1, 0], [0] * 4, [0] * 4])
    np.testing.assert_array_equal(
        found.judged.toarray(), [[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    )


def test_annotated_pairs_are_right_unless_left_out(write):
    truth, path = known(), str(write(EXPERTS))
    pool = JudgementOptions(source=str(write(CROWD, "crowd.txt")), unjudged="wrong_in_pool")
    alone = JudgementOptions(source=path, name="alone", annotated=False)
    wrong = JudgementOptions(source=path, name="wrong", unjudged="wrong", annotated=False)
    add_judgements(truth, [path, alone, wrong, pool])
    # b.jpg#2 was judged wrong for its own photo; of a.jpg#0, a.jpg#2 and c.jpg nothing was judged.
    np.testing.assert_array_equal(
        truth.extra["judged"].grades.toarray(), [[0, 0, 1, 2], [0, 0, 2, 0], [0, 0, 0, 0]]
    )
    assert truth.extra["judged"].judged.toarray().sum() == 4
    assert truth.extra["alone"].judged.toarray().sum() == 4
    assert truth.extra["wrong"].fully_judged
    # The crowd saw all three photos, but only a.jpg#2 and b.jpg#2.
    np.testing.assert_array_equal(truth.extra["crowd"].judged.toarray(), [[0, 1, 1, 0]] * 3)
    np.testing.assert_array_equal(
        truth.extra["crowd"].grades.toarray(), [[0, 2, 1, 0], [0, 0, 2, 0], [0] * 4]
    )
    np.testing.assert_array_equal(
        truth.extra["alone"].grades.toarray(), truth.extra["wrong"].grades.toarray()
    )


def test_a_csv_file_can_leave_out_what_was_not_judged(write):
    path = write("image,caption,grade\na.jpg,b.jpg#2,2\na.jpg,c.jpg#2,0\n", "judged.csv")
    assert read_judgements(path, PHOTOS, CAPTIONS).fully_judged
    found = read_judgements(path, PHOTOS, CAPTIONS, unjudged="left_out")
    np.testing.assert_array_equal(found.judged.toarray()[0], [False, False, True, True])
    assert found.grades.nnz == 1
    path = write("image,caption\na.jpg,b.jpg#2\n", "judged.csv")
    with pytest.raises(JudgementsError, match=r"has no wrong pairs.*use `unjudged: wrong`"):
        read_judgements(path, PHOTOS, CAPTIONS, unjudged="left_out")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (EXPERTS + "a.jpg\ta.jpg#2\t1\t2\t5\n", r"txt:6: 'a\.jpg a\.jpg#2 1 2 5' is not a line of"),
        (EXPERTS + CROWD, r"txt:6: .* is not a line"),
        (CROWD + "a.jpg\tc.jpg#2\t0.9\t1\t2\n", r"txt:5: .* is not a line"),
        (EXPERTS + "a.jpg\tb.jpg#2\t1\t1\t1\n", r"txt:6: the pair of a\.jpg .* is in line 1 too"),
        ("x.jpg\ty.jpg#2\t1\t1\t1\n", r"has none of the images and captions.*'x\.jpg'"),
    ],
)
def test_mistakes_name_the_line(write, text, says):
    with pytest.raises(JudgementsError, match=says):
        read_judgements(write(text), PHOTOS, CAPTIONS)


def test_a_config_names_the_judgements_of_the_data_set(tmp_path):
    root = f"data.source.root={tmp_path}"
    datasets.flickr8k(tmp_path)
    config = load_config(find_config("flickr8k_pretrained"), [root])
    assert [own.title for own in config.judgements_of("test")] == ["experts", "crowd", "crowd_pool"]
    assert config.judgements_of("test")[0].source == str(tmp_path / "ExpertAnnotations.txt")
    assert config.judgements_of("val") == ()
    own = json.dumps([{"source": "crowd", "name": "alone", "annotated": False}])
    config = load_config(find_config("flickr8k_pretrained"), [root, f"evaluation.judgements={own}"])
    assert config.judgements_of("test")[0].source == str(tmp_path / "CrowdFlowerAnnotations.txt")
    assert config.judgements_of("test")[0].title == "alone"
    check_files(config)
    (tmp_path / "CrowdFlowerAnnotations.txt").unlink()
    # Such as by somebody who moves the data between `prepare` and `train`.
    with pytest.raises(ConfigError, match=r"evaluation\.judgements\.0: .*Crowd.* does not exist"):
        check_files(config)
    with pytest.raises(ConfigError, match=r"'crowd' comes from .*CrowdFlower.* does not exist"):
        load_config(find_config("flickr8k_pretrained"), [root])
    with pytest.raises(ConfigError, match=r"'crowd' does not exist"):
        load_config(find_config("csv_pretrained"), ["evaluation.judgements=[crowd]"])
