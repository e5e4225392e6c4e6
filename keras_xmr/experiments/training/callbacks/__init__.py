"""Callbacks of a training: validation, logs, watchdog and checkpoints."""

from keras_xmr.experiments.training.callbacks.checkpoint import Checkpoint
from keras_xmr.experiments.training.callbacks.logs import CsvLog, EpochMeans, TensorBoard
from keras_xmr.experiments.training.callbacks.progress_bar import ProgressBar
from keras_xmr.experiments.training.callbacks.step import StepCallback, UnreadLogs
from keras_xmr.experiments.training.callbacks.validate import Validation
from keras_xmr.experiments.training.callbacks.watchdog import TrainingStoppedError, Watchdog

__all__ = [
    "Checkpoint",
    "CsvLog",
    "EpochMeans",
    "ProgressBar",
    "StepCallback",
    "TensorBoard",
    "TrainingStoppedError",
    "UnreadLogs",
    "Validation",
    "Watchdog",
]
