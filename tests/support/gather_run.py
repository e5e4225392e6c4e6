"""One batch on two processes of PyTorch: gradients equal those of one process.

Run as `python gather_run.py FOLDER`, which makes the second process.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from keras_xmr import losses, matchers
from keras_xmr.utils.errors import ArgumentError

RANDOM = np.random.default_rng(0)
WIDTH = 6
# The second process has more images and longer captions.
IMAGES, OWNERS = (3, 4), (np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2, 3, 3]))
# Of images: the first of the one process is as the last of the other.
CLASSES = (torch.tensor([7, 1, 2]), torch.tensor([3, 4, 5, 7]))


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
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.text = torch.nn.Linear(8, WIDTH), torch.nn.Linear(8, WIDTH)
            self.loss = losses.InfoNCE(learnable=True)
            self.matcher = matchers.SGR(similarity_dimension=5) if case == "sgr" else None

        def forward(self, images, captions, rows, classes):
            sides = [self.image(images[0]), self.text(captions[0])]
            if self.matcher is not None:
                pairs = zip(sides, (images, captions), strict=True)
                sides = [{"tokens": side, "mask": given[1]} for side, given in pairs]
            images, captions, rows = losses.gather(*sides, rows)
            value = self.loss(images, captions, rows, matcher=self.matcher)
            classes = losses.gather_labels(classes)
            found = classes[:, None] == classes[rows]
            return value + self.loss(images, captions, positives=found, matcher=self.matcher)

    batches = []
    lengths = ((5, 4), (5, 7))  # Of images and captions.
    given = zip(points(IMAGES, OWNERS), lengths, CLASSES, strict=True)
    for (images, captions, owner), sizes, classes in given:
        sides = []
        for values, length in zip((images, captions), sizes, strict=True):
            if case == "sgr":
                values = RANDOM.normal(size=(len(values), length, 8)).astype("f")
                counts = RANDOM.integers(2, length + 1, len(values))
                mask = torch.tensor(np.float32(np.arange(length) < counts[:, None]))
            else:
                mask = None
            sides.append((torch.tensor(values), mask))
        batches.append((*sides, torch.tensor(owner), classes))
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
    # An error of one process is one of both, which can go on.
    wrong = torch.tensor([9]) if rank else torch.tensor([0])
    try:
        losses.gather(torch.ones(1, 2), torch.ones(1, 2), wrong)
    except ArgumentError as error:
        message = str(error)
    assert "image_ids[0] is 9" in message if rank else "process 1 of 2" in message
    # What is left of the group must go while both live: its end waits for the other process.
    del spread
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    longest = max(captions[0].shape[1] for _, captions, *_ in batches) if case == "sgr" else 0
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
    expected = net(*whole, torch.tensor(whole_rows()), torch.cat(CLASSES))
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-5)
    for name, p in net.named_parameters():
        if p.requires_grad:
            np.testing.assert_allclose(found[name], p.grad, atol=1e-5, rtol=1e-3, err_msg=name)
    assert max(slope.abs().max().item() for slope in found.values()) > 1e-3


if __name__ == "__main__":
    # Imports take longer than everything else. No thread of PyTorch runs yet.
    other = os.fork()
    for case in ("points", "sgr"):
        run_torch(case, int(other == 0), sys.argv[1])
    if other:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
