"""Does the steps of a run on a disk that is full, or read-only, and lets each end at last.

    python tests/support/full_disks.py FOLDER SEED TIMES

FOLDER holds `whole.yaml` and `broken.yaml`; all that the latter makes lies in `broken`, which
becomes a small disk of its own. It prints, as JSON, how often each step was refused.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from faults import STEPS, become, finish, words_of

from keras_xmr.experiments.config.loader import load_config

ENOUGH = 200 << 20
BLOCK = 4096


class Disk:
    """A disk in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._mount("-t", "tmpfs", f"-osize={ENOUGH}", "tmpfs")

    def free(self, size: int) -> None:
        """Leaves so many bytes of it free."""
        used = shutil.disk_usage(self.folder).used
        self._mount(f"-oremount,rw,size={used + max(size, BLOCK)}")

    def close(self) -> None:
        """Nothing can be written any more."""
        self._mount("-oremount,ro")

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, str(self.folder)], check=True)


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def said_by(words: list[str]) -> tuple[int, str]:
    """The exit code of what a user writes, and what it said."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        become(words, write)
    os.close(write)
    with os.fdopen(read, encoding="utf-8", errors="replace") as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), said


def refused(words: list[str]) -> bool:
    """Whether it ended with a sentence in place of what it should do; nothing else may be."""
    code, said = said_by(words)
    last = said.strip().splitlines()[-1] if said.strip() else ""
    if "Traceback" in said or code not in (0, 1) or (code and not last.startswith("error: ")):
        sys.exit(f"{words} ended with {code}:\n{said[-3000:]}")
    if code:
        print(f"{words[0]}: {last}", flush=True)
    return code == 1


def main() -> None:
    """Does all steps of `whole`, and those of `broken` with too little space first."""
    folder, seed, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    whole, broken = folder / "whole.yaml", folder / "broken.yaml"
    disk = Disk(folder / "broken")
    found = {}
    runs = ",".join(str(load_config(path).folder) for path in (whole, broken))
    compare = ["compare", f"--runs={runs}", f"--output={folder / 'broken' / 'comparison'}"]
    try:
        for step in (*STEPS, "compare"):
            words, before = compare, bytes_in(folder / "whole")
            if step in STEPS:
                words = words_of(step, broken)
                finish(step, whole, folder / "log.txt")
            needed = bytes_in(folder / "whole") - before
            disk.close()
            found[step] = int(refused(words))
            for size in [0, *(chance.randint(0, needed or 100_000) for _ in range(times))]:
                disk.free(size)
                found[step] += refused(words)
            disk.free(ENOUGH)
            code, said = said_by(words)
            if code:
                sys.exit(f"{step} ended with {code}:\n{said[-3000:]}")
        print(json.dumps(found))
    finally:
        # What was made is looked at after this process has ended.
        shutil.copytree(folder / "broken", folder / "kept")
        subprocess.run(["umount", str(folder / "broken")], check=True)
        shutil.copytree(folder / "kept", folder / "broken", dirs_exist_ok=True)


if __name__ == "__main__":
    main()
