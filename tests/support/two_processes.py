"""Losses and matchers of gathered embeddings, in two processes, devices or replicas.

Run by tests/support/backend_matrix.py as `python two_processes.py RANK FOLDER NAME ...`: the
value and the gradients of each part equal those of the whole batch. With PyTorch there are two such
processes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import every_part
import keras
import numpy as np
from backend_matrix import BACKEND, array, tensors

from keras_xmr import losses

ITEMS = 3
ROWS = np.array([0, 1, 2]), np.array([0, 2, 2])  # Of each process.


def make(name: str) -> tuple[Any, list[Any], Any]:
    """A function of both embeddings and rows, the embeddings of each process, and of all."""
    random = np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    is_loss = name in every_part.LOSSES
    case = (every_part.LOSSES if is_loss else every_part.MATCHERS)[name]
    part, matcher = case.make(), case.matcher and case.matcher() if is_loss else None
    for module in (part, matcher):
        if BACKEND == "torch" and module is not None:
            module.eval()
    whole = [every_part.embedding(kind, 2 * ITEMS, random) for kind in case.kinds]
    weights = random.normal(size=(2 * ITEMS, 2 * ITEMS)).astype("f")
    more = {"relevance": np.abs(weights)} if case.relevance else {}
    if not part.built:
        shapes = [{key: one.shape for key, one in side.items()} for side in whole]
        part.build(*([None] if is_loss else []), *shapes)

    def value(image: Any, caption: Any, rows: Any) -> Any:
        if is_loss:
            return part(image, caption, rows, matcher=matcher, **more)
        return keras.ops.sum(part(image, caption) * keras.ops.convert_to_tensor(weights))

    def share(rank: int) -> Any:
        here = slice(rank * ITEMS, (rank + 1) * ITEMS)
        return [{key: one[here] for key, one in side.items()} for side in whole]

    return value, [share(0), share(1)], whole


def close(name: str, value: Any, found: Any, expected: Any, right: Any) -> None:
    np.testing.assert_allclose(value, expected, rtol=2e-4, atol=1e-5, err_msg=name)
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-4, err_msg=name)


def all_rows() -> np.ndarray:
    return np.concatenate([ROWS[0], ITEMS + ROWS[1]])


def with_torch(name: str, rank: int) -> None:
    import torch

    value, shares, whole = make(name)

    def slopes(sides: Any, rows: Any, gathers: bool) -> Any:
        leaves = tensors(sides)
        flat = [one.requires_grad_() for one in keras.tree.flatten(leaves)]
        given = losses.gather(*leaves, rows) if gathers else (*leaves, rows)
        total = value(*given)
        found = torch.autograd.grad(total, flat, allow_unused=True, materialize_grads=True)
        return total.item(), [one.numpy() for one in found]

    # A gradient goes to the process of the embedding, summed over the two that have the loss.
    found, own = slopes(shares[rank], torch.tensor(ROWS[rank]), True)
    expected, right = slopes(whole, torch.tensor(all_rows()), False)
    here = slice(rank * ITEMS, (rank + 1) * ITEMS)
    close(name, found, [one / 2 for one in own], expected, [one[here] for one in right])


def with_jax(name: str) -> None:
    import jax

    value, shares, whole = make(name)

    def step(image: Any, caption: Any, rows: Any) -> Any:
        return value(*losses.gather(image, caption, rows, axis_name="all"))

    stacked = keras.tree.map_structure(lambda *both: np.stack(both), *shares)
    both = jax.pmap(jax.value_and_grad(step, argnums=(0, 1)), axis_name="all")
    values, found = both(*stacked, np.stack(ROWS))
    expected, right = jax.jit(jax.value_and_grad(value, argnums=(0, 1)))(*whole, all_rows())
    joined = [np.asarray(one).reshape(-1, *one.shape[2:]) for one in keras.tree.flatten(found)]
    wanted = [np.asarray(one) for one in keras.tree.flatten(right)]
    close(name, np.asarray(values), [one / 2 for one in joined], float(expected), wanted)


def with_tensorflow(name: str, strategy: Any) -> None:
    import tensorflow as tf

    value, shares, whole = make(name)

    def slopes(image: Any, caption: Any, rows: Any, gathers: bool = True) -> Any:
        sides = [image, caption]
        with tf.GradientTape() as tape:
            tape.watch(sides)
            total = value(*(losses.gather(*sides, rows) if gathers else (*sides, rows)))
        return total, tape.gradient(total, sides, unconnected_gradients="zero")

    def spread(both: Any) -> Any:
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(both[context.replica_id_in_sync_group])
        )

    given = keras.tree.map_structure(lambda *both: spread(both), *shares)
    step = tf.function(slopes)
    values, found = strategy.run(step, args=(*given, spread(ROWS)))
    local = strategy.experimental_local_results
    expected, right = slopes(*tensors(whole), tf.constant(all_rows()), gathers=False)
    joined = [np.concatenate([array(x) for x in local(one)]) for one in keras.tree.flatten(found)]
    wanted = [array(one) for one in keras.tree.flatten(right)]
    total = [float(one) for one in local(values)]
    close(name, total, [one / 2 for one in joined], float(expected), wanted)


def main() -> None:
    rank, folder, *names = sys.argv[1:]
    more: list[Any] = []
    if BACKEND == "torch":
        import torch.distributed as processes

        more = [int(rank)]
        processes.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=int(rank), world_size=2
        )
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
        more = [tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])]
    run: Any = {"torch": with_torch, "jax": with_jax, "tensorflow": with_tensorflow}[BACKEND]
    errors = {}
    for name in names:
        try:
            run(name, *more)
            errors[name] = ""
        except Exception as error:
            errors[name] = repr(error)[-1500:]
        if BACKEND == "torch":
            processes.barrier()
    Path(folder, f"{rank}.json").write_text(json.dumps(errors))
    if BACKEND == "torch":
        processes.destroy_process_group()


if __name__ == "__main__":
    main()
