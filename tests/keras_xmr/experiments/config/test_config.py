"""Configs: reading, overriding, mistakes, and the help that they carry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from keras_xmr.commands.explain import explain
from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.packaged_configs import find_config, packaged_configs
from keras_xmr.parts.registry import FAMILIES, components, options_of, summary_of
from keras_xmr.utils.errors import ConfigError

DEMO = "scenes_pcme"


def mistakes(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(find_config(DEMO), overrides)
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, "utf-8")
        return path

    return write


@pytest.mark.slow
@pytest.mark.parametrize("name", packaged_configs())
def test_configs_that_come_along_are_valid_and_read_back_the_same(name, write):
    config = load_config(find_config(name))
    assert config.name == name
    assert find_config(f"configs/{name}.yaml").stem == name
    assert load_config(write("resolved.yaml", dump_config(config))) == config


def test_overrides_reach_any_key():
    config = load_config(
        find_config(DEMO),
        [
            "train.batch_size=32",
            "objective.1.weight=1e-3",
            "train.phases.0.freeze=[image.encoder]",
            "model.matcher.samples=3",
            "model.image.pooling={name: attention, hidden: 8}",
            "model.text.pooling.final_state=released",
            "evaluation.matchers.0=kl",
        ],
    )
    assert config.train.batch_size == 32
    assert config.objective[1].weight == 1e-3
    assert config.train.phases[0].freeze == ("image.encoder",)
    assert config.model.matcher.samples == 3
    assert config.model.image.pooling.options() == {"hidden": 8}
    assert config.model.text.pooling.final_state == "released"
    assert config.evaluation.matchers[0].name == "kl"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("train.batchsize=3", "train.batchsize.*unknown key.*'batch_size'"),
        ("train.batch_size=0", "train.batch_size.*got 0.*greater than or equal to 2"),
        ("train.batch_size=many", "train.batch_size.*'many'.*integer"),
        ("model.matcher.name=match_probabilty", "model.matcher.name.*'match_probability'"),
        ("model.matcher.smaples=3", "model.matcher.smaples.*'samples'"),
        ("objective.0.reduction=men", "objective.0.reduction.*'men'.*'mean'"),
        ("objective.0.weight=-1", "objective.0.weight.*-1"),
        ("objective.0.weight=1e308", r"objective.0.weight.*1e\+308.*less than or equal to 1"),
        ("train.phases.0.learning_rate=1e30", r"learning_rate.*1e\+30.*less than or equal"),
        ("train.phases.0.learning_rates={text: 1e30}", r"learning_rates.text.*1e\+30.*1000"),
        ("train.operation_threads=100000", "operation_threads.*100000.*equal to 1024"),
        ("data.prepare.workers=100000", "prepare.workers.*100000.*equal to 1024"),
        ("data.source.name=cocoo", "data.source.name.*'coco'"),
        ("data.source.trian=3", "data.source.trian.*'train'"),
        ("data.sorce.train=3", "--set data.sorce.train=3.*data.sorce: unknown.*'source'"),
        ("train.optimizer=sgd", "train.optimizer.name.*adamp"),
        ("train.phases.0.freeze=[image.encodr]", "freeze.*'image.encodr'.*image.encoder"),
        ("train.phases.0.freeze=[image, text]", "nothing is left to train"),
        ("train.phases.0.warmup_epochs=99", "warmup_epochs.*99"),
        ("train.phases.0.schedule=step", "decay_epochs.*needs"),
        ("train.phases.0.decay_epochs=[1]", "decay_epochs.*no effect"),
        (
            "train.phases.0={epochs: 2, learning_rate: 1, schedule: constant, cosine_epochs: 9}",
            "cosine_epochs.*no effect.*schedule: cosine",
        ),
        ("train.phases.0.cosine_epochs=5", "cosine_epochs.*5.0.*6 epochs.*rate of 0"),
        ("train.sampler=one_per_class", "train.sampler.*one class.*'scenes'"),
        ("data.judgements=classes", "data.judgements.*'scenes'"),
        ("data.image.resize=32", r"data.image.*resize \(32\).*size \(64\)"),
        (
            "model.image.encoder=word_embedding",
            "--set.*model.image.encoder.*encodes texts.*small_cnn",
        ),
        ("model.image.encoder=regions", "takes regions.*holds images"),
        ("model.image.head=point", "(?s)match_probability.*point.*gaussian and gaussian"),
        ("model.matcher=cosine", "'soft_contrastive'.*log-odds.*match_probability"),
        ("model.matcher=max_cosine", "'max_cosine' scores set and set, set and point"),
        ("objective=[diversity]", "'diversity' reads the residuals.*gaussian.*pie_net"),
        (
            "objective=[{name: triplet, mining: sum, warmup_steps: 9}]",
            "objective.0.warmup_steps.*no effect.*hardest",
        ),
        ("model.dimension=7", "model.dimension.*7 is odd.*'bi_gru'.*such as 8"),
        (
            "model.image.pooling={name: gpo, encoding: 33}",
            "model.image.pooling.encoding.*33.*multiple of 2",
        ),
        ("name=../elsewhere", "name.*'../elsewhere'.*pattern"),
        ("train.monitor=rsumm", "train.monitor.*'rsum'"),
        ("objective.7.weight=1", "objective.7"),
        ("nonsense", "key=value"),
        ("train.batch_size=[", "not valid YAML"),
    ],
)
def test_mistakes_name_key_value_and_the_way_out(override, says):
    assert re.search(says, mistakes(override))


def test_every_folder_of_photos_has_records_of_its_own():
    def records(name: str, *overrides: str) -> str:
        return str(load_config(find_config(name), list(overrides)).data.records)

    roots = ("my_photos", "/elsewhere/my_photos", "more_photos")
    found = [records("csv_pretrained", f"data.source.root={root}") for root in roots]
    assert len(set(found)) == 3
    assert [Path(path).name.rpartition("-")[0] for path in found] == [
        "csv-my_photos",
        "csv-my_photos",
        "csv-more_photos",
    ]
    assert records("csv_pcme", "data.source.root=my_photos") == found[0]
    assert records("csv_pcme", "data.records=data/mine") == "data/mine"
    with pytest.raises(ConfigError) as error:
        records("csv_pcme", "data.source=null")
    assert "data.records" not in str(error.value)


def test_all_mistakes_are_told_at_once():
    message = mistakes("train.batchsize=3", "model.dimension=-2", "seed=x")
    assert len(message.splitlines()) == 3


def test_mistakes_name_file_and_line(write):
    text = find_config(DEMO).read_text("utf-8").replace("batch_size:", "batchsize:")
    line = next(n for n, t in enumerate(text.splitlines(), 1) if "batchsize" in t)
    path = write("typo.yaml", text)
    with pytest.raises(ConfigError, match=rf"typo\.yaml:{line}: train\.batchsize: unknown key"):
        load_config(path)


def test_files_include_others(write):
    write("base.yaml", find_config(DEMO).read_text("utf-8"))
    path = write(
        "child.yaml",
        "include: base.yaml\nname: child\ntrain: {batch_size: 16}\n"
        "model: {text: {encoder: {name: word_embedding, dropout: 0.5}}}\n",
    )
    config = load_config(path)
    assert (config.name, config.train.batch_size) == ("child", 16)
    assert config.train.phases == load_config(find_config(DEMO)).train.phases
    # The same component keeps the options that the child does not mention.
    encoder = config.model.text.encoder
    assert (encoder.dropout, encoder.dimension) == (0.5, 64)
    write("typo.yaml", "include: base.yaml\nname: typo\ntrain: {batchsize: 16}\n")
    with pytest.raises(ConfigError, match=r"typo\.yaml:3"):
        load_config(path.with_name("typo.yaml"))


def test_dotted_keys_change_what_is_included(write):
    write("base.yaml", find_config(DEMO).read_text("utf-8"))
    path = write(
        "child.yaml",
        "include: base.yaml\nname: child\ntrain.phases.0.learning_rate: 2e-3\n"
        "evaluation.matchers.1.name: elk\nmodel.text.pooling.final_state: released\n"
        "train: {batch_size: 16}\n",
    )
    config, base = load_config(path), load_config(find_config(DEMO))
    phase = base.train.phases[0].model_copy(update={"learning_rate": 2e-3})
    assert config.train == base.train.model_copy(update={"batch_size": 16, "phases": (phase,)})
    assert [m.name for m in config.evaluation.matchers] == ["mean_only", "elk", "elk", "average_l2"]
    assert config.model.text.pooling.final_state == "released"
    grandchild = write("grandchild.yaml", "include: child.yaml\ntrain.phases.0.epochs: 2\n")
    assert load_config(grandchild).train.phases[0] == phase.model_copy(update={"epochs": 2})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train.phases.1.learning_rate: 1", r"child\.yaml:2: train\.phases\.1 does not exist"),
        ("train.phases.0.rate: 1", r"child\.yaml:2: train\.phases\.0\.rate: unknown key"),
        (
            "model.matcher: {name: elk, scales: 2}",
            r"child\.yaml:2: model\.matcher\.scales: unknown key",
        ),
        (
            "train: {seed: 1}\ntrain.seed: 2",
            r"child\.yaml:3: train\.seed: duplicate key",
        ),
        ("train: {optimizer.name: adam}", r"child\.yaml:2: train\.optimizer\.name: unknown key"),
    ],
)
def test_mistakes_in_dotted_keys_are_told_with_their_line(write, text, says):
    write("base.yaml", find_config(DEMO).read_text("utf-8"))
    with pytest.raises(ConfigError, match=says):
        load_config(write("child.yaml", f"include: base.yaml\n{text}\n"))


def test_another_component_takes_no_options_of_the_old_one(write):
    write("base.yaml", find_config(DEMO).read_text("utf-8"))
    path = write(
        "child.yaml",
        "include: base.yaml\nname: child\nmodel: {matcher: {name: mean_only, scale: 5}}\n",
    )
    assert load_config(path).model.matcher.options() == {"scale": 5.0, "shift": 30.0}


def test_missing_config_names_the_nearest():
    with pytest.raises(ConfigError, match="'scenes_pcme'"):
        find_config("configs/scenes_pcm.yaml")
    with pytest.raises(ConfigError, match="folder"):
        find_config("/")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_part_and_option_has_a_text(family):
    for part in components(family).values():
        assert summary_of(part)
        for name, field in options_of(part).model_fields.items():
            assert name == "name" or field.description, f"{part}.{name} has no text"


@pytest.mark.parametrize("family", FAMILIES)
def test_components_take_their_options_and_keep_them(family):
    for part_name, part in components(family).items():
        needed = {"dimension": 8} if family in ("pooling", "head") else {}
        if family == "head":
            needed["pooling"] = components("pooling")["mean"](8).get_config
            continue
        if getattr(getattr(part, "CONTRACT", None), "reads_words", False):
            needed = {"vocabulary": 9, "pad": 0}
        choice = options_of(part)(name=part_name)
        made, options = choice.build(**needed), choice.options()
        if hasattr(made, "get_config"):
            kept = made.get_config()
            assert {name: kept[name] for name in options} == pytest.approx(options)


def test_every_key_is_explained():
    text = explain()
    for key in ("batch_size", "learning_rate", "max_skipped", "final_state", "zero_shot"):
        assert key in text or key in explain("model.text.pooling") + explain("data.source")
    assert "int = 7" in explain("model.matcher.match_probability")
    assert "kwargs" not in text
    assert not {"Annotated", "Optional", "Literal", "tuple", "pathlib"} & set(
        re.findall(r"\w+", text)
    )
    assert "crop_area: [float, float] = [0.08, 1.0]" in text
    assert "workers: int | null = null" in text
    assert "phases: a list of sections, needed" in text
    assert "Learning rate at its highest" in explain("train.phases")
    for key in ("evaluation.metrics.recall_5", "evaluation.i2t_recall_5"):
        assert explain(key).startswith("recall_5: fraction")
        assert "among the first K. A standard metric" in explain(key)
    assert "rank" in explain("evaluation.metrics.reciprocal_rank")
    assert explain("train.precision").startswith("precision: float32 | mixed_float16")
    with pytest.raises(ConfigError, match="batch_size"):
        explain("train.batchsize")


def test_further_judgements_are_checked():
    assert "judges COCO, not the source 'scenes'" in mistakes("evaluation.judgements=[cxc]")
    assert "'no.csv' does not exist" in mistakes("evaluation.judgements=[no.csv]")


@pytest.mark.parametrize("names", [["annotated"], ["truth"], ["mine", "more/mine"]])
def test_judgements_need_names_of_their_own(tmp_path, names):
    paths = [tmp_path / f"{name}.csv" for name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("image,caption\n")
    found = mistakes(f"evaluation.judgements={json.dumps(list(map(str, paths)))}")
    assert f"figures named {paths[-1].stem!r}; rename the file '{paths[-1]}'" in found
