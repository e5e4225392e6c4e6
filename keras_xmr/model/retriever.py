"""The model: two towers, a matcher, and the objective that trains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import keras
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_xmr import embeddings
from keras_xmr.embeddings.kinds import Embedding, Gaussian, shapes_of, tensors
from keras_xmr.layers.tensorflow_paths import num_replicas, split_seed
from keras_xmr.losses import Loss
from keras_xmr.losses.direction_losses import Direction
from keras_xmr.matchers import Matcher
from keras_xmr.metrics import Recall
from keras_xmr.model.gradient_caching import Chunks, check_towers, dense
from keras_xmr.model.objective import MatchRule, Objective, Targets, relations, targets_read
from keras_xmr.model.pairs import Relevance, relevant_pairs
from keras_xmr.model.replicas import (
    accept_summed_gradients,
    first_local_item,
    gather,
    pad_to_longest,
    sum_over_replicas,
)
from keras_xmr.model.required_backend import check_backend
from keras_xmr.model.retriever_arguments import (
    Inputs,
    as_inputs,
    as_objective,
    as_targets,
    as_tower,
    check_classes,
    check_pairs,
    check_parts,
)
from keras_xmr.model.watch import bad_number
from keras_xmr.parts.registry import import_parts
from keras_xmr.parts.tensors import Seed, Tensor
from keras_xmr.utils.errors import ArgumentError

GRADIENT = "gradient_norm"

_LAYERS = ("image_tower", "text_tower", "matcher", "objective")
_OPTIONS = ("name", "judgements", "clip_norm", "seed", "gradient_caching")


@keras.saving.register_keras_serializable(package="keras_xmr")
class Retriever(keras.Model):
    """Image-text retrieval: two towers and a matcher, trained by an objective.

    The objective is over the global batch, however many replicas share it: embeddings are
    gathered, and every replica computes all losses, divided by the number of replicas. Losses and
    gradients, added up, equal the gradients of one device.

    Args:
        image_tower: Functional model from images to an embedding, or to a tensor (N, D), which
            is an embedding of points.
        text_tower: The same from captions: from word ids, or any other input.
        matcher: Makes scores of embeddings.
        objective: A loss, several, or an `Objective` with their weights.
        judgements: What counts as a match in a training batch, "pairs" or "classes".
        clip_norm: Largest global norm of the gradients; None does not clip.
        seed: Seed of the samples that are drawn in training.
        gradient_caching: Items that a tower embeds at once in training, whatever the batch; see
            `keras_xmr.model.gradient_caching`. None embeds the whole batch.
        **kwargs: Passed on to `keras.Model`.

    Raises:
        ArgumentError: If a part has a wrong type, or parts do not fit together.
        BackendError: If Keras has another backend than TensorFlow.

    Attributes:
        global_step: Steps trained, over all phases.
        watched: Names of the numbers that are monitored in each step.
        last_values: The numbers in the last step.
        first_nonfinite_step: The first step in which one of them was not finite; 0 for none.
        bad_number: The index of that number: a loss, or a term of one, where others were finite.
        feature_tower: Where not None, the model is called on local features of images in place
            of images: the rest of the image tower, which shares its layers with it.
        caption_feature_tower: The same of captions, in place of word ids.

    Called on `{"image": ..., "caption": ...}`, or on a pair of both, it returns the embeddings of
    both under these keys. It is trained on `(x, image_ids)`: pairs with the same number, int (N,),
    are of one image, and all match. With `judgements="classes"` these are numbers
    of classes.
    """

    def __init__(
        self,
        image_tower: keras.Model,
        text_tower: keras.Model,
        matcher: Matcher,
        objective: Objective | Loss | Sequence[Loss],
        judgements: MatchRule = "pairs",
        clip_norm: float | None = None,
        seed: int = 0,
        gradient_caching: int | None = None,
        **kwargs: object,
    ) -> None:
        check_backend()
        super().__init__(**kwargs)
        image_tower, text_tower = as_tower(image_tower, "image"), as_tower(text_tower, "text")
        objective = as_objective(objective)
        check_parts(image_tower, text_tower, matcher, objective)
        self.image_tower = image_tower
        self.text_tower = text_tower
        self.feature_tower: keras.Model | None = None
        self.caption_feature_tower: keras.Model | None = None
        self.matcher = matcher
        self.objective = objective
        self.judgements = judgements
        self.clip_norm = clip_norm
        self.gradient_caching = gradient_caching
        self.seed = seed
        self.watched = ["loss", *objective.names]
        for side, tower in (("image", image_tower), ("text", text_tower)):
            if "log_variance" in tower.output:
                self.watched.append(f"{side}_log_sigma")
        self.watched.append(GRADIENT)
        self.trackers = {name: keras.metrics.Mean(name=name) for name in self.watched[1:]}
        self.global_step = self._add_state("global_step", "int64")
        self.recalls: list[Recall] = []
        self.last_values = self._add_state("last_values", "float32", len(self.watched))
        self.first_nonfinite_step = self._add_state("first_nonfinite_step", "int64")
        self.bad_number = self._add_state("bad_number", "int64")
        self._build_parts()
        self.built = True

    def _build_parts(self) -> None:
        """Builds the matcher and the losses, so that their weights exist before any are loaded."""
        self.matcher.share_parameters_with(self.objective.losses_)
        outputs = (self.image_tower.output, self.text_tower.output)
        if not self.matcher.built and embeddings.kind(outputs[0]) == "tokens":
            # By shapes alone: it matters whether the number of regions varies.
            self.matcher.build(*map(shapes_of, outputs))
        if not self.matcher.built:
            image, caption = (tf.nest.map_structure(_two_items, output) for output in outputs)
            self.score(image, caption)
        if not self.objective.built:
            pairs = (None, None)
            image_shape, caption_shape = map(shapes_of, outputs)
            self.objective.build(pairs, image_shape, caption_shape, {"positives": pairs})

    def _add_state(self, name: str, dtype: str, *shape: int) -> keras.Variable:
        """Adds a variable that records training; the same on every replica."""
        return self.add_weight(
            name=name,
            shape=shape,
            initializer="zeros",
            dtype=dtype,
            trainable=False,
            aggregation="only_first_replica",
        )

    @property
    def image_tower_input_model(self) -> keras.Model:
        """The image tower, or its part after the encoder where batches hold features."""
        return self.image_tower if self.feature_tower is None else self.feature_tower

    @property
    def caption_tower_input_model(self) -> keras.Model:
        """The text tower, or its part after the encoder where batches hold features."""
        tower = self.caption_feature_tower
        return self.text_tower if tower is None else tower

    def input_models(self) -> dict[str, keras.Model]:
        """Returns both input models under the keys of the inputs.

        Not a property: Keras would name the saved weights after it, as the first attribute that
        holds them, and not load weights of earlier runs.
        """
        return {"image": self.image_tower_input_model, "caption": self.caption_tower_input_model}

    def call(self, inputs: Inputs, training: bool = False) -> dict[str, Embedding]:
        sides = as_inputs(inputs)
        return {
            "image": self.image_tower_input_model(sides["image"], training=training),
            "caption": self.caption_tower_input_model(sides["caption"], training=training),
        }

    def compile(
        self,
        optimizer: str | dict[str, object] | keras.Optimizer = "rmsprop",
        loss: object = None,
        *,
        metrics: Sequence[Recall] | None = None,
        jit_compile: bool | str = False,
        **kwargs: object,
    ) -> None:
        """Configures the training, as `keras.Model.compile` does.

        Args:
            optimizer: The optimizer.
            loss: None: the model has its losses.
            metrics: Metrics of each batch, such as `keras_xmr.metrics.Recall(k=10)`.
            jit_compile: Whether the step is compiled with XLA, which not all losses can be.
            **kwargs: Passed on to `keras.Model.compile`.

        Raises:
            ArgumentError: If there is a loss, or a metric of another kind; or with gradient
                caching a tower that is trained with batch normalisation.
        """
        if self.gradient_caching is not None:
            check_towers(self.input_models())
        if loss is not None:
            raise ArgumentError("pass the loss to Retriever(...), not to compile()")
        metrics = [] if metrics is None else list(metrics)
        for metric in metrics:
            if not isinstance(metric, Recall):
                raise ArgumentError(
                    f"metrics are of scores, such as keras_xmr.metrics.Recall(k=10), not {metric!r}"
                )
        super().compile(optimizer, jit_compile=jit_compile, **kwargs)
        self.recalls = metrics
        accept_summed_gradients(self.optimizer)

    def get_compile_config(self) -> dict[str, object] | None:
        config = super().get_compile_config()
        metrics = [keras.saving.serialize_keras_object(metric) for metric in self.recalls]
        return config | {"metrics": metrics} if config and metrics else config

    def compile_from_config(self, config: dict[str, object]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: object = None,
        y: Any = None,
        batch_size: int | None = None,
        *args: object,
        relevance: ArrayLike | Relevance | None = None,
        **kwargs: object,
    ) -> keras.callbacks.History:
        """Trains the model on arrays of pairs, or on a data set, as `keras.Model.fit` does.

        Args:
            x: Images and captions, one for each image, or a data set of `(x, image_ids)`.
            y: The numbers of the images, int (N,).
            batch_size: Pairs of a batch, 32 by default.
            *args: Passed on to `keras.Model.fit`.
            relevance: For a loss that learns from it: how relevant captions are to images, float
                (images, N), or a function of the numbers of images and of captions in a batch; see
                `keras_xmr.relevance`.
            **kwargs: Passed on to `keras.Model.fit`.

        Raises:
            ArgumentError: If these are not pairs, or texts where the tower takes word ids; or if
                the relevance is of other pairs, or no loss reads it.
        """
        check_pairs(x, y, self.input_models())
        if relevance is None:
            return super().fit(x, y, batch_size, *args, **kwargs)
        if not self.objective.needs_relevance or self.judgements != "pairs" or y is None:
            raise ArgumentError(
                "relevance is for a loss that reads it, such as DAA(), which is trained on arrays "
                "of pairs with the numbers of their images; remove the argument"
            )
        shuffle, size = bool(kwargs.pop("shuffle", True)), batch_size or 32
        pairs = relevant_pairs(
            as_inputs(x), y, relevance, batch_size=size, shuffle=shuffle, seed=self.seed
        )
        return super().fit(pairs, None, None, *args, **kwargs)

    def _maybe_symbolic_build(self, iterator: object = None, data_batch: object = None) -> None:
        """Builds the optimizer; the model is built already.

        Under a strategy Keras would take a batch of the data away for this, and average its
        parts, which fails where they differ in size (keras-team/keras#20585).
        """
        if self.compiled and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    def score(self, image: Embedding, caption: Embedding) -> Tensor:
        """Returns scores (images, captions) of embeddings, as in evaluation: larger is better.

        Where a matcher scores by direction, images are the queries.
        """
        return self.matcher(image, caption)

    def compute_loss(
        self,
        x: Inputs | None = None,
        y: object = None,
        y_pred: Any = None,
        sample_weight: object = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the share of this replica in the objective over the global batch.

        Summed over the replicas, its gradients are the gradients of one device.
        """
        loss, log = self._objective(y_pred, x, y, training)
        self._add_up(loss, log)
        return loss

    def _add_up(
        self, loss: Tensor, log: dict[str, Tensor], gradients: Sequence[Tensor] = ()
    ) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Sums them over all replicas, and updates the means of the log."""
        gradients, (loss, *values) = sum_over_replicas(gradients, [loss, *log.values()])
        log = dict(zip(log, values, strict=True))
        for name, value in log.items():
            self.trackers[name].update_state(value)
        return loss, log, gradients

    def _objective(
        self, embedded: Mapping[str, Embedding], x: Inputs | None, y: object, training: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the share of this replica in the objective, and in the numbers of the log."""
        y = targets_read(as_targets(y, self.judgements), self.judgements, self.objective)
        image, caption, step = embedded["image"], embedded["caption"], self.global_step.value
        if self.objective.needs_caption_ids:
            caption = caption | {"word_ids": tf.cast(as_inputs(x)["caption"], tf.float32)}
        batch = self._batch(image, caption, y, training)
        loss, log = self.objective(
            batch.scores, batch.queries, batch.candidates, batch.relations, step=step
        )
        if self.recalls:
            self._measure(batch)
        for side, items in (("image", batch.queries), ("text", batch.candidates)):
            if "log_variance" in items:
                log[f"{side}_log_sigma"] = tf.reduce_mean(
                    embeddings.log_sigma(cast(Gaussian, items))
                )
        replicas = num_replicas()
        return loss / replicas, {name: value / replicas for name, value in log.items()}

    def _batch(self, image: Embedding, caption: Embedding, y: Targets, training: bool) -> Direction:
        """Returns all images of the global batch as queries, with their scores."""
        has_replicas, count = num_replicas() > 1, tf.shape(next(iter(image.values())))[0]
        if has_replicas:
            image, caption = (
                self.objective.select_gathered(pad_to_longest(items)) for items in (image, caption)
            )
            image, caption, y = gather((image, caption, y))
        seeds: tuple[Seed, Seed] = (None, None)
        if training:
            seed = tf.stack([self.seed, tf.cast(self.global_step.value, tf.int32)])
            seeds = split_seed(seed)
        image = self.matcher.prepare(image, "image", seeds[0], training=training)
        caption = self.matcher.prepare(caption, "text", seeds[1], training=training)
        if has_replicas and embeddings.kind(image) == "tokens" and self.matcher.contract.tileable:
            # Scoring regions with words is most of a step: each replica scores its images.
            first = first_local_item(count)
            own = {name: tensor[first : first + count] for name, tensor in tensors(image).items()}
            scores = gather(self.matcher(own, caption, training=training))
        else:
            scores = self.matcher(image, caption, training=training)
        return Direction(scores, image, caption, relations(y, self.judgements))

    def _measure(self, batch: Direction) -> None:
        """Counts the batch in the metrics that the model was compiled with."""
        image, caption, columns = batch.queries, batch.candidates, None
        if self.matcher.contract.directed:
            columns = self.matcher(image, caption, query="text")
        for recall in self.recalls:
            recall.update_state(batch.positives, batch.scores, columns)

    def train_step(self, data: object) -> dict[str, Tensor]:
        """Returns one step on a batch `(x, y)` of this replica."""
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        loss, log, gradients = self._gradients(x, y)
        # Before they are checked: all replicas must agree on gradients that are not finite.
        loss, log, gradients = self._add_up(loss, log, gradients)
        self._loss_tracker.update_state(loss)
        gradients, norm = self._clip(gradients)
        self.trackers[GRADIENT].update_state(norm)
        self._watch([loss, *(log[name] for name in self.watched[1:-1]), norm])
        self.optimizer.apply(gradients, self.trainable_variables)
        return self._step_logs()

    def _gradients(self, x: Inputs, y: object) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Returns the share of this replica in the objective and in the log, and its gradients.

        With gradient caching the embeddings come from chunks, to which the gradients by them go
        back.
        """
        inputs, variables, size = as_inputs(x), self.trainable_variables, self.gradient_caching
        chunks = {
            side: Chunks(tower, inputs[side], size)
            for side, tower in self.input_models().items()
            if size is not None
        }
        cached = {side: chunk.embed() for side, chunk in chunks.items()}
        with tf.GradientTape() as tape:
            tape.watch(cached)
            loss, log = self._objective(cached or self(x, training=True), x, y, training=True)
            scaled = self.optimizer.scale_loss(loss)
        gradients, upstream = tape.gradient(scaled, (variables, cached))
        totals = {id(v): g for v, g in zip(variables, dense(gradients, variables), strict=True)}
        for side, chunk in chunks.items():
            weights = chunk.tower.trainable_variables
            for weight, gradient in zip(weights, chunk.gradients(upstream[side]), strict=True):
                totals[id(weight)] += gradient
        return loss, log, list(totals.values())

    def test_step(self, data: object) -> dict[str, Tensor]:
        """Returns one step of `evaluate` on a batch `(x, y)` of this replica."""
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        loss, log = self._objective(self(x, training=False), x, y, training=False)
        loss, _, _ = self._add_up(loss, log)
        self._loss_tracker.update_state(loss)
        return self._step_logs()

    def _step_logs(self) -> dict[str, Tensor]:
        """Returns the results of the metrics of this replica."""
        logs = self.get_metrics_result()
        if isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            # Keras averages the first axis of the logs of several workers (keras-team/keras#20585).
            return {name: value[None] for name, value in logs.items()}
        return logs

    def _clip(self, gradients: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Clips gradients, which may be scaled, by their global norm, which is not."""
        scale = getattr(self.optimizer, "dynamic_scale", None)
        scale = 1.0 if scale is None else tf.cast(scale, tf.float32)
        norm = tf.linalg.global_norm(gradients) / scale
        if self.clip_norm is None:
            return gradients, norm
        factor = tf.minimum(self.clip_norm / tf.maximum(norm, 1e-12), 1.0)
        return [gradient * factor for gradient in gradients], norm

    def _watch(self, values: list[Tensor]) -> None:
        """Notes the numbers of this step, and the first of all that was not finite."""
        values = tf.stack([tf.cast(value, tf.float32) for value in values])
        finite = tf.math.is_finite(values)
        if hasattr(self.optimizer, "dynamic_scale"):
            # With a scaled loss, a gradient that overflows now and then is part of the plan.
            finite = tf.concat([finite[:-1], [True]], axis=0)
        step = self.global_step.value + 1
        first = (self.first_nonfinite_step.value == 0) & ~tf.reduce_all(finite)
        number = bad_number(finite, self.watched, len(self.objective.names))
        self.bad_number.assign(tf.where(first, number, self.bad_number.value))
        self.first_nonfinite_step.assign(tf.where(first, step, self.first_nonfinite_step.value))
        self.last_values.assign(values)
        self.global_step.assign(step)

    def without_optimizer(self) -> Retriever:
        """Returns the same model, of the same layers, that was never compiled: for saving
        and loading.

        The returned model shares its weights with this one.
        """
        with self.distribute_strategy.scope():
            plain = Retriever(**{name: getattr(self, name) for name in (*_LAYERS, *_OPTIONS)})
            plain.global_step.assign(self.global_step)
        return plain

    def get_config(self) -> dict[str, object]:
        parts = {n: keras.saving.serialize_keras_object(getattr(self, n)) for n in _LAYERS}
        return {name: getattr(self, name) for name in _OPTIONS} | parts

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, object] | None = None
    ) -> Retriever:
        import_parts()
        check_classes(config, custom_objects or {})
        parts = {
            name: keras.saving.deserialize_keras_object(config.pop(name), custom_objects)
            for name in _LAYERS
        }
        return cls(**parts, **config)


def _two_items(output: keras.KerasTensor) -> Tensor:
    """Returns two items like the output of a tower, all 0; unknown sizes are 2."""
    return tf.zeros([2 if size is None else size for size in output.shape], output.dtype)
