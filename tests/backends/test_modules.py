"""Losses, matchers and heads as modules of PyTorch: parameters, state and devices."""

from __future__ import annotations

import copy

import every_part
import keras
import numpy as np
import pytest
from keras.src.utils import module_utils

from keras_xmr import heads, losses, matchers
from keras_xmr.heads import pooling as poolings
from keras_xmr.utils.errors import ArgumentError

if keras.backend.backend() != "torch":
    pytest.skip("of PyTorch", allow_module_level=True)

import torch


def tensors(side):
    return {key: torch.tensor(array) for key, array in side.items()}


def test_scalars_are_parameters_from_the_constructor_on():
    made = (
        losses.InfoNCE(learnable=True),
        matchers.MatchProbability(),
        losses.MahalanobisContrastive(),
    )
    net = torch.nn.ModuleList(made)
    assert [name for name, _ in net.named_parameters()] == [
        "0.divide._torch_params.log_temperature",
        "1._torch_params.scale",
        "1._torch_params.shift",
        "2._torch_params.temperature",
    ]
    assert list(net.state_dict()) == [
        "0.divide.log_temperature",
        "1.scale",
        "1.shift",
        "2.temperature",
    ]


def states(name, random):
    """Two parts of one kind, of which the first was called, and their inputs."""
    is_loss = name in every_part.LOSSES
    case = every_part.LOSSES[name] if is_loss else every_part.MATCHERS[name]
    sides = [tensors(side) for side in every_part.sides(case, random)]
    more = every_part.relevance(case, random)
    if is_loss:
        more |= {"image_ids": every_part.IMAGE_IDS, "matcher": case.matcher and case.matcher()}
    return case.make(), case.make(), sides, more


@pytest.mark.parametrize(
    "make",
    [
        lambda: heads.Gaussian(6, lambda: poolings.Mean(6)),
        lambda: heads.PIENet(6, lambda: poolings.GPO(6), set_size=2),
        lambda: heads.Tokens(6, context="bi_gru"),
    ],
)
def test_the_state_of_a_head(make, random):
    features = torch.tensor(random.normal(size=(3, 4, 6)), dtype=torch.float32)
    head, other = make().eval(), make().eval()
    expected = head(features)
    other.load_state_dict(head.state_dict())
    assert not any("/" in key for key in head.state_dict())
    for key, value in other(features).items():
        torch.testing.assert_close(value, expected[key])


def test_an_optimizer_that_lacks_parameters_is_noticed(random):
    _, matcher, sides, _ = states("SGR", random)
    net = torch.nn.ModuleList([torch.nn.Linear(2, 2), matcher])
    optimizer = torch.optim.Adam(net.parameters())
    with pytest.warns(UserWarning, match="SGR has made parameters in its first call"):
        matcher(*sides)
    del optimizer


@pytest.mark.slow
def test_parameters_after_distributed_data_parallel_are_refused(random, tmp_path):
    _, matcher, sides, _ = states("SGR", random)
    net = torch.nn.ModuleList([torch.nn.Linear(2, 2), matcher])
    file = f"file://{tmp_path}/processes"
    torch.distributed.init_process_group("gloo", init_method=file, rank=0, world_size=1)
    try:
        spread = torch.nn.parallel.DistributedDataParallel(net)
        for _ in range(2):
            with pytest.raises(ArgumentError, match="before DistributedDataParallel"):
                matcher(*sides)
        del spread
        matcher(*sides)
    finally:
        torch.distributed.destroy_process_group()


def test_every_parameter_is_in_the_list_of_its_parent(random):
    part, _, sides, _ = states("SGRAF", random)
    part(*sides).sum().backward()
    listed = {id(one) for one in torch.nn.ModuleList([part]).parameters()}
    assert {id(weight.value) for weight in part.weights} == listed


def test_a_copy_does_not_look_for_tensorflow(monkeypatch):
    def look(_):
        pytest.fail("looked for TensorFlow")

    monkeypatch.setattr(module_utils.LazyModule, "available", property(look))
    copied = copy.deepcopy(losses.InfoNCE(temperature=0.1, learnable=True, name="first"))
    assert repr(copied) == "InfoNCE(temperature=0.1, learnable=True)"
    assert copied.name == "first"


def test_a_misspelt_option_names_the_nearest():
    with pytest.raises(
        ArgumentError, match=r"InfoNCE has no option 'temprature'. Did you mean 'temp"
    ):
        losses.InfoNCE(temprature=0.1)
    assert repr(losses.InfoNCE(temperature=0.1)) == "InfoNCE(temperature=0.1, learnable=False)"


def test_tensors_stay_on_their_device(random, monkeypatch):
    from keras.src.backend.torch import core

    # As on a machine with a GPU, where Keras computes on it unless it is told otherwise.
    monkeypatch.setattr(core, "DEFAULT_DEVICE", "meta")
    points = torch.tensor(random.normal(size=(4, 8)), dtype=torch.float32)
    loss = losses.InfoNCE(learnable=True)
    loss.to_empty(device="cpu")
    with torch.no_grad():
        loss.divide.log_temperature.value.zero_()
    assert loss(points, points).device == matchers.Cosine()(points, points).device == points.device
    assert np.isfinite(loss(points, points).item())
