"""One batch on two processes, devices or replicas: gradients equal those of one process.

Run as `python gather_run.py [RANK FOLDER]`, where the two of PyTorch are processes.
"""

from __future__ import annotations

import os
import sys

import keras
import numpy as np
from keras import ops

from keras_xmr import losses, matchers

RANDOM = np.random.default_rng(0)
WIDTH = 6
# The second process has more images and, with PyTorch, longer captions.
IMAGES, OWNERS = (3, 4), (np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2, 3, 3]))
EVEN = (3, 3), (np.array([0, 1, 2, 2]), np.array([0, 0, 1, 2]))


def points(counts, owners):
    """The batch of each process: images, captions and rows."""
    rows = [len(rows) for rows in owners]
    return [
        (RANDOM.normal(size=(n, 8)).astype("f"), RANDOM.normal(size=(m, 8)).astype("f"), owner)
        for n, m, owner in zip(counts, rows, owners, strict=True)
    ]


def whole_rows():
    return np.concatenate([OWNERS[0], IMAGES[0] + OWNERS[1]])


def run_torch(case, rank, folder):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = torch.nn.Linear(8, WIDTH), torch.nn.Linear(8, WIDTH)
            self.loss = losses.NTXent(learnable=True)
            self.matcher = matchers.SGR(similarity_dimension=5) if case == "sgr" else None

        def forward(self, images, captions, rows):
            sides = [self.image(images[0]), self.text(captions[0])]
            if self.matcher is not None:
                pairs = zip(sides, (images, captions), strict=True)
                sides = [{"tokens": side, "mask": given[1]} for side, given in pairs]
            images, captions, rows = losses.gather(*sides, rows)
            return self.loss(images, captions, rows, matcher=self.matcher)

    batches = []
    lengths = ((5, 4), (5, 7))  # Of images and captions.
    for (images, captions, owner), sizes in zip(points(IMAGES, OWNERS), lengths, strict=True):
        sides = []
        for values, length in zip((images, captions), sizes, strict=True):
            if case == "sgr":
                values = RANDOM.normal(size=(len(values), length, 8)).astype("f")
                counts = RANDOM.integers(2, length + 1, len(values))
                mask = torch.tensor(np.float32(np.arange(length) < counts[:, None]))
            else:
                mask = None
            sides.append((torch.tensor(values), mask))
        batches.append((*sides, torch.tensor(owner)))
    torch.manual_seed(0)
    net = Net().eval()
    net(*batches[rank])  # Before there are processes: alone.
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/{case}", rank=rank, world_size=2
    )
    spread = DistributedDataParallel(net)
    for _ in range(2):  # An unused parameter is an error at the second step.
        net.zero_grad()
        value = spread(*batches[rank])
        value.backward()
    found = {name: p.grad.clone() for name, p in net.named_parameters() if p.requires_grad}
    value = value.item()
    # What is left of the group must go while both live: its end waits for the other process.
    del spread
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    longest = max(captions[0].shape[1] for _, captions, _ in batches) if case == "sgr" else 0
    whole = []
    for side in range(2):
        parts = [batch[side] for batch in batches]
        if case == "sgr":
            size = longest if side else 5
            parts = [
                (
                    torch.nn.functional.pad(tokens, (0, 0, 0, size - tokens.shape[1])),
                    torch.nn.functional.pad(mask, (0, size - mask.shape[1])),
                )
                for tokens, mask in parts
            ]
        masks = None if case == "points" else torch.cat([mask for _, mask in parts])
        whole.append((torch.cat([values for values, _ in parts]), masks))
    net.zero_grad()
    expected = net(*whole, torch.tensor(whole_rows()))
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    for name, p in net.named_parameters():
        if p.requires_grad:
            np.testing.assert_allclose(found[name], p.grad, atol=1e-5, rtol=1e-3, err_msg=name)
    assert max(slope.abs().max().item() for slope in found.values()) > 1e-3


def value_of(weights, images, captions, rows, axis_name=None, loss=None):
    sides = ops.matmul(images, weights[0]), ops.matmul(captions, weights[1])
    if axis_name != "":
        *sides, rows = losses.gather(*sides, rows, axis_name=axis_name)
    return loss(*sides, rows)


def run_jax():
    import jax

    loss, batches = losses.SmoothAP(), points(*EVEN)
    weights = [RANDOM.normal(size=(8, WIDTH)).astype("f") for _ in range(2)]

    def step(weights, images, captions, rows):
        value, slopes = jax.value_and_grad(value_of)(
            weights, images, captions, rows, axis_name="all", loss=loss
        )
        return value, jax.lax.pmean(slopes, "all")

    stacked = [np.stack(parts) for parts in zip(*batches, strict=True)]
    values, slopes = jax.pmap(step, axis_name="all", in_axes=(None, 0, 0, 0))(weights, *stacked)
    check(values, [slope[0] for slope in slopes], jax.value_and_grad(value_of), weights, batches)


def check(values, slopes, whole, weights, batches):
    images, captions, _ = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    rows = np.concatenate([EVEN[1][0], EVEN[0][0] + EVEN[1][1]])
    loss = losses.SmoothAP()
    expected, right = whole(weights, images, captions, rows, axis_name="", loss=loss)
    np.testing.assert_allclose(np.asarray(values), float(expected), rtol=1e-5)
    for slope, wanted in zip(slopes, right, strict=True):
        np.testing.assert_allclose(slope, wanted, atol=1e-6, rtol=1e-3)
        assert np.abs(wanted).max() > 1e-3


def run_tensorflow():
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    batches = points(*EVEN)
    weights = [RANDOM.normal(size=(8, WIDTH)).astype("f") for _ in range(2)]
    loss = losses.SmoothAP()

    def slopes_of(weights, images, captions, rows, **more):
        tensors = [tf.convert_to_tensor(weight) for weight in weights]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = value_of(tensors, images, captions, rows, **more)
        return value, tape.gradient(value, tensors)

    @tf.function
    def step(images, captions, rows):
        value, slopes = slopes_of(weights, images, captions, rows, loss=loss)
        context = tf.distribute.get_replica_context()
        # As optimizers do: the sum, of the loss divided by the number of replicas.
        return value, context.all_reduce("sum", [slope / 2 for slope in slopes])

    spread = [
        strategy.experimental_distribute_values_from_function(
            lambda context, part=part: tf.constant(part[context.replica_id_in_sync_group])
        )
        for part in zip(*batches, strict=True)
    ]
    values, slopes = strategy.run(step, args=spread)
    values = [float(value) for value in strategy.experimental_local_results(values)]
    slopes = [strategy.experimental_local_results(slope)[0] for slope in slopes]
    check(values, slopes, slopes_of, weights, batches)


if __name__ == "__main__":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if keras.backend.backend() == "torch":
        for case in ("points", "sgr"):
            run_torch(case, int(sys.argv[1]), sys.argv[2])
    else:
        {"jax": run_jax, "tensorflow": run_tensorflow}[keras.backend.backend()]()
