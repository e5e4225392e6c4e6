"""Parts of a trained model, built and loaded independently."""

from __future__ import annotations

from typing import Any

import keras

from data_pipelines.progress import waiting
from data_pipelines.text import Tokenizer
from keras_xmr.config.registry import build, components
from keras_xmr.config.schema import Config
from keras_xmr.encoders import InputSpec
from keras_xmr.matchers import Matcher
from keras_xmr.model.towers import image_tower, text_tower
from keras_xmr.runs.folder import RunFolder
from keras_xmr.runs.loading import load_trained


@waiting("loading the model")
def load_image_tower(config: Config, folder: RunFolder) -> keras.Model:
    """Loads the trained image tower of a run on photos.

    Raises:
        UserError: If its weights are missing or damaged.
    """
    options = config.model
    tower = image_tower(options.image, options.dimension, _spec(config, ()))
    return _loaded(config, folder, image_entrance=tower)


@waiting("loading the model")
def load_text_tower(config: Config, folder: RunFolder, tokenizer: Tokenizer) -> keras.Model:
    """Loads the trained text tower of a run.

    Raises:
        UserError: If its weights are missing or damaged.
    """
    options = config.model
    tower = text_tower(options.text, options.dimension, _spec(config, tokenizer.vocabulary))
    return _loaded(config, folder, caption_entrance=tower)


def load_matcher(config: Config, folder: RunFolder) -> Matcher:
    """Loads the trained matcher of a run, if it `is_independent`.

    Raises:
        UserError: If its weights are missing or damaged.
    """
    matcher = build("matcher", config.model.matcher, name="matcher")
    return _loaded(config, folder, matcher=matcher)


def is_independent(config: Config) -> bool:
    """Whether the weights of the matcher are independent of the rest of the model.

    Those of matchers of tokens have shapes of the towers, others share variables of losses, and
    matchers of plugins may do either.
    """
    options = config.model
    heads = [components("head")[o.head.name] for o in (options.image, options.text)]
    losses = [components("loss")[choice.name] for choice in config.objective]
    return (
        components("matcher")[options.matcher.name].module.startswith("keras_xmr.")
        and all(head.contract.kind != "tokens" for head in heads)
        and not any(loss.contract.shared_parameters for loss in losses)
    )


def _spec(config: Config, vocabulary: Any) -> InputSpec:
    keras.config.set_dtype_policy(config.train.precision)
    return InputSpec(
        image_size=config.data.image.size,
        regions=None,
        vocabulary=vocabulary,
        pretrained=False,
        seed=config.seed,
    )


def _loaded(config: Config, folder: RunFolder, **part: Any) -> Any:
    """Loads the weights of a part."""
    holder: Any = _Holder(**part)
    load_trained(holder, config, folder)
    return next(iter(part.values()))


class _Holder(keras.Model):
    """Holds a part of a `Retriever` under the name by which Keras saves its weights.

    Keras sorts the attributes by name, and takes the first that has a layer.
    """

    def __init__(self, **part: Any) -> None:
        super().__init__()
        for name, layer in part.items():
            setattr(self, name, layer)
        self.built = True

    def load_own_variables(self, store: Any) -> None:
        """Ignores them: those of a `Retriever` are notes of its training."""
        del store
