"""Callbacks of a training. One file each."""

from keras_xmr.training.callbacks.base import UnreadLogs
from keras_xmr.training.callbacks.checkpoint import Checkpoint
from keras_xmr.training.callbacks.logs import CsvLog, EpochMeans, ProgressBar, TensorBoard
from keras_xmr.training.callbacks.validation import Validation
from keras_xmr.training.callbacks.watchdog import TrainingStoppedError, Watchdog
