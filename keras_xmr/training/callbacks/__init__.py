"""What happens beside the steps of a training. One file each."""

from keras_xmr.training.callbacks.checkpoint import Checkpoint
from keras_xmr.training.callbacks.csv_log import CsvLog
from keras_xmr.training.callbacks.epoch_means import EpochMeans
from keras_xmr.training.callbacks.progress_bar import ProgressBar
from keras_xmr.training.callbacks.tensorboard import TensorBoard
from keras_xmr.training.callbacks.unread_logs import UnreadLogs
from keras_xmr.training.callbacks.validation import Validation
from keras_xmr.training.callbacks.watchdog import TrainingStoppedError, Watchdog

__all__ = [
    "Checkpoint",
    "CsvLog",
    "EpochMeans",
    "ProgressBar",
    "TensorBoard",
    "TrainingStoppedError",
    "UnreadLogs",
    "Validation",
    "Watchdog",
]
