"""Configs that are broken in every way: a mistake ends as a ConfigError, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from keras_xmr.experiments.config.loader import dump_config, load_config
from keras_xmr.experiments.config.packaged_configs import find_config
from keras_xmr.utils.errors import ConfigError

DEMO = find_config("scenes_pcme")
LINES = DEMO.read_text("utf-8").splitlines()

KEYS = (
    "name", "seed", "output", "data.source", "data.records", "data.image.crop_area.0",
    "data.text", "model.dimension", "model.image.encoder", "model.image.head.name",
    "model.text.pooling", "model.matcher.scale", "objective", "objective.0",
    "objective.0.weight", "objective.1.reduction", "objective.9", "train.phases",
    "train.phases.0.freeze", "train.phases.0.learning_rates", "train.batch_size",
    "train.watchdog.sigma", "evaluation.matchers", "evaluation.matchers.0",
    "evaluation.matchers.0.scale", "evaluation.tile.1", "evaluation.judgements", "paper",
    "paper.figures", "relevance.measure", "export", ".", "a..b", "0", "²", "train.²",
)  # fmt: skip
VALUES = (
    "", "~", "0", "-1", "true", ".inf", "-.inf", ".nan", "1e400", "1" + "0" * 30, "9" * 5000,
    "2026-13-45", "2026-01-01 25:00:00", "!!int foo", "!!int ''", "!!float x", "!!bool foo",
    "!!timestamp foo", "!!binary x", "!!set {a}", "!!python/name:os.system ''", "[]", "{}", "[[]]",
    "[null]", "[.nan, .inf]", "{name: }", "{name: [1]}", "{1: 2}", "{[1]: 2}", "{<<: {a: 1}}", "<<",
    "=", "'\\0'", '"\\0"', '"\\ud800"', '"\\UFFFFFFFF"', "&a [*a]", "*b", "x" * 5000, "[1, 2",
    "{a: 1", "'", "%x", "@", "!", "? a", "[" * 40 + "]" * 40, "mean_only", "[mean_only, kl]",
    "/dev/zero", "/", "../x", "٣",
)  # fmt: skip


def override(chance: random.Random) -> str:
    deep = chance.choice(("", "", ".x", ".0", ".name", ".x" * 50))
    return f"{chance.choice(KEYS)}{deep}={chance.choice(VALUES)}"


def mutated(chance: random.Random) -> str:
    lines = list(LINES)
    for _ in range(chance.choice((1, 1, 2, 3))):
        number = chance.randrange(len(lines))
        line = lines[number]
        place = chance.randrange(len(line) + 1)
        lines[number] = chance.choice(
            (
                "",
                chance.choice(lines),
                f"{line.partition(':')[0]}: {chance.choice(VALUES)}",
                " " * chance.randrange(4) + line,
                line[:place] + chance.choice("{}[]:,&*!|>'\"%@`#-? \t\x07é") + line[place:],
                line[:place],
                f"{chance.choice(('include', '<<', *KEYS))}: {chance.choice(VALUES)}\n{line}",
            )
        )
    return "\n".join(lines)


def load(path: Path, *overrides: str) -> str:
    """What came of it: nothing if it is a config, which then can be written and read again."""
    try:
        config = load_config(path, overrides)
    except ConfigError as error:
        return str(error).encode("utf-8").decode()
    path.write_text(dump_config(config), "utf-8")
    assert load_config(path) == config
    return ""


@pytest.mark.slow
def test_nothing_but_a_config_error_comes_of_a_mutation(tmp_path):
    chance, said = random.Random(11), []
    path = tmp_path / "mutated.yaml"
    for number in range(80):
        path.write_text(mutated(chance) if number % 2 else DEMO.read_text("utf-8"), "utf-8")
        said.append(load(path, *([] if number % 2 else [override(chance)])))
    assert sum(map(bool, said)) > 50
    assert max(map(len, said)) < 5000, "values and lists of mistakes are shortened"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed: !!int foo\n", r"bad\.yaml:1: seed: 'foo' is not a valid int"),
        ("name: a\nseed: !!bool foo\n", r"bad\.yaml:2: seed: 'foo' is not a valid bool"),
        ("seed: !!set {a}\n", r"bad\.yaml:1: seed: values of the type 'set'"),
        ("data: &a {x: 1}\nmodel: {<<: *a}\n", r"bad\.yaml:2: YAML merge keys"),
        ("train: &a [*a]\n", r"bad\.yaml:1: train\.0\.0: nested more than 32 deep"),
        ("train: " + "[" * 40 + "]" * 40, r"bad\.yaml:1: not valid YAML: nested more than 32"),
        pytest.param(
            "a0: &a0 [x]\n"
            + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)),
            r"bad\.yaml:1: a4\..* more than 10,000 values with those that anchors repeat",
            id="billion laughs",
        ),
        pytest.param("name: " + "x" * 200_000, "a config has 200,000 at most", id="large"),
        ('name: "a\\0b"\n', r"bad\.yaml:1: name: .* control or surrogate characters"),
        ('name: "\\ud800"\n', r"bad\.yaml:1: .*(surrogate characters|invalid Unicode character)"),
        ("name: [1\n", r"bad\.yaml:\d: not valid YAML: "),
        ("\nname: '\\x'\ninclude:\n", r"bad\.yaml:3: include: got None; write the name of a file"),
        ("- 1\n", "a mapping"),
        ("include: missing.yaml\n", "no such file"),
        ("seed: !!python/object/apply:os.getcwd []\n", "bad.yaml"),
        ("include: 3\n", r"bad\.yaml:1: include: got 3"),
        ("include: [{a: b}]\n", r"bad\.yaml:1: include: got {'a': 'b'}"),
        ("name: x\ninclude: ..\n", r"bad\.yaml:2: include: .* is a folder"),
        ("include: /dev/zero\n", "no such file"),
        ("include: [bad.yaml]\n", r"bad\.yaml:1: include: .* includes itself"),
        ("name: x\n" * 2, r"bad\.yaml:2: name: duplicate key"),
        ("unknown: 1\n" + "".join(f"k{n}: 1\n" for n in range(99)), r"\nand \d\d more$"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, text, says):
    path = tmp_path / "bad.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=says):
        load_config(path)


def test_files_that_include_each_other_without_end_are_refused(tmp_path):
    for depth in range(6):
        (tmp_path / f"{depth}.yaml").write_text(f"include: {[f'{depth + 1}.yaml'] * 9}\n")
    (tmp_path / "6.yaml").write_text("seed: 1\n")
    with pytest.raises(ConfigError, match="more than 50 files are included"):
        load_config(tmp_path / "0.yaml")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("objective.0.weight", ".inf", "finite"),
        ("model.matcher.scale", ".nan", "finite"),
        ("train.phases.0.learning_rates", "{image.encoder: .inf}", "finite"),
        ("seed", "1" + "0" * 30, "whole numbers go to 2,147,483,647"),
        ("train.batch_size", "'4000000000'", "whole numbers go to 2,147,483,647"),
        ("name", "x/" + "y" * 5000, r"got 'x/y{90,}\.\.\.: "),
        ("evaluation.matchers.9.scale", "1", r"evaluation\.matchers\.9 does not exist"),
    ],
)
def test_values_that_nothing_can_be_done_with_are_refused(key, value, says):
    with pytest.raises(ConfigError, match=says):
        load_config(DEMO, [f"{key}={value}"])
