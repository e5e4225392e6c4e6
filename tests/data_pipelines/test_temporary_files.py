"""Temporary files of killed processes are removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

from keras_xmr.utils.files import remove_stale_temporaries, temporary_path


def test_only_what_no_process_writes_is_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [f".a.tfrecord.{ended.pid}.7", temporary_path(tmp_path / "b.json").name]
    kept = [f".c.tfrecord.{os.getppid()}.7", ".hidden", "a.tfrecord.5.7", "whole.tfrecord"]
    for name in left + kept:
        (tmp_path / name).write_text("something")
    (tmp_path / f".1.{ended.pid}.7" / "variables").mkdir(parents=True)
    remove_stale_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
    remove_stale_temporaries(tmp_path, alone=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept[1:])
