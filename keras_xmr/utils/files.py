"""Files: atomic writing, checksums, locks, CSV, and checks of output folders."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

import numpy as np

from keras_xmr.utils.errors import UserError

NO_ARRAY = (
    *(OSError, EOFError, BadZipFile, zlib.error, ValueError, OverflowError, MemoryError),
    # The header of an array is read as Python text.
    *(SyntaxError, TokenError),
    # An archive says of itself that it is encrypted, or compressed in an unknown way.
    RuntimeError,
)
"""Exceptions that `numpy.load` raises for files without a complete array."""


def user_path(text: str | Path) -> Path:
    """Returns a path whose `~` is the home folder: shells keep it in `--images=~/photos`."""
    return Path(os.path.expanduser(text))


def bytes_after(array: np.ndarray, path: Path) -> int:
    """Returns the number of bytes of a file after its memory-mapped array; 0 for other arrays.

    `numpy.load` ignores them, but an array that lost or gained bytes has others.
    """
    if not isinstance(array, np.memmap):
        return 0
    size: int = path.stat().st_size - array.offset - array.nbytes
    return size


def checksum(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, sha256: str | None) -> None:
    """Compares a file with its checksum.

    Raises:
        ValueError: If it has another.
        OSError: If it cannot be read.
    """
    if checksum(path) != sha256:
        raise ValueError(f"{path.name} does not have its checksum")


_TEMPORARY = re.compile(r"\..+\.(?P<process>\d+)\.\d+(\.[a-z0-9.]+)?")


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, then renames it.

    A device or a pipe is written to. A link stays, and the file that it names is replaced.

    Raises:
        OSError: If the disk is full or cannot be written. It names the file, and nothing is left
            behind.
    """
    if _is_special(path):
        path.write_bytes(content)
        return
    with replace_atomically(path) as temporary:
        temporary.write_bytes(content)


def _is_special(path: Path) -> bool:
    """Returns whether a path is a device, a pipe or the like, perhaps by a link."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def replace_atomically(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yields a temporary path; at the end, the file there is renamed unless an error occurred.

    A link stays, and the file that it names is replaced.

    Args:
        path: The file.
        suffix: See `temporary_path`.

    Raises:
        OSError: If the disk is full or cannot be written. It names the file.
        UserError: If it is a device, a pipe or the like.
    """
    if _is_special(path):
        raise UserError(f"{path} is a device or a pipe; name a file")
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    temporary = temporary_path(path, suffix)
    try:
        yield temporary
        atomic_replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def temporary_path(path: Path, suffix: str = "") -> Path:
    """Returns the temporary path of a file for this thread of this process.

    Args:
        path: The file.
        suffix: Required end of the name, such as ".npz".
    """
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{suffix}")


def atomic_replace(temporary: Path, path: Path) -> None:
    """Renames a temporary file after flushing it to the disk, so that it survives a power cut."""
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)


def reserve(path: Path, size: int) -> None:
    """Creates a file with reserved disk space, where the system supports that.

    For libraries that crash on a full disk: they write into the file afterwards.

    Raises:
        OSError: If the disk is full, or the size exceeds the limit of the process.
    """
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Some file systems do not support this for folders.
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_stale_temporaries(folder: Path, alone: bool = False) -> None:
    """Removes temporary files of killed processes in a folder.

    To be called before this process writes into the folder: files with its process id were left by
    an earlier process with the same id, as in a container.

    Args:
        folder: The folder, which need not exist.
        alone: Whether the lock of the folder is held, so that all temporary files are stale. If
            False, files of running processes are kept.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        name = _TEMPORARY.fullmatch(path.name)
        if name is None or (not alone and _runs(int(name["process"]))):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    """Returns whether another process with this id is running on this machine."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # It belongs to another user.
    return True


def check_folder(path: Path) -> None:
    """Checks that files can be written to a folder, which need not exist yet.

    Args:
        path: The folder.

    Raises:
        UserError: If it, or its closest existing parent, is not a writable folder.
    """
    existing = path
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not os.path.isdir(existing):
        raise UserError(f"{existing} is not a folder; choose another place, or move it away")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"{existing} cannot be written to; choose another place, or change its permissions"
        )


try:
    import fcntl
except ImportError:  # Windows does not have it: folders are not locked there.
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"


class LockedError(UserError):
    """Another process uses a folder; the message names both."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes, and creates it if necessary.

    The system frees the lock of a process that ends, even if it is killed. Temporary files of
    killed processes are removed. On file systems without locks, folders are not locked.

    Args:
        folder: The folder.

    Raises:
        LockedError: If another process holds the lock, or it cannot be written.
    """
    path = folder / _LOCK
    try:
        descriptor = _take(path)
    except OSError as error:
        raise LockedError(f"{path} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        # Removed while it is held, so that no other process holds it.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)
        with suppress(OSError):
            folder.rmdir()  # Succeeds only if the folder is empty.


def has_lock(folder: Path) -> bool:
    """Returns whether a process holds the lock of a folder, or was killed while it did."""
    return (folder / _LOCK).exists()


def _take(path: Path) -> int:
    """Opens and acquires the lock."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # Its last owner removed the empty folder.
        try:
            is_alone = _lock(descriptor, path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        if _is_at(descriptor, path):
            if is_alone:
                remove_stale_temporaries(path.parent, alone=True)
            os.truncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "command": sys.argv}).encode())
            return descriptor
        os.close(descriptor)  # Its last owner removed it meanwhile.


def _lock(descriptor: int, folder: Path) -> bool:
    """Locks an open file; returns False where locks are not supported."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"{folder} is in use by {_owner(descriptor)}. Wait for it to end, or stop it; then "
            "start again"
        ) from None
    except OSError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _owner(descriptor: int) -> str:
    """Returns the owner of the lock, as recorded in the file."""
    try:
        owner = json.loads(os.pread(descriptor, 1 << 16, 0))
        return f"process {owner['pid']} ({' '.join(owner['command'])[:200]})"
    except (ValueError, TypeError, KeyError):
        return "another process"


def lines_of(text: str) -> list[str]:
    """Splits a text at newlines, not at other line breaks of Unicode."""
    return [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]


@contextmanager
def reading(
    path: Path, holds: str, error: type[UserError], missing: type[UserError] | None = None
) -> Iterator[None]:
    """Turns errors of reading a file into sentences.

    Args:
        path: The file.
        holds: Description of its expected content.
        error: Class of the errors.
        missing: Class of the error about a file that does not exist, if it is another.

    Raises:
        UserError: Of these classes, if the file cannot be read, or is not of its format.
    """
    try:
        yield
    except FileNotFoundError:
        raise (missing or error)(f"{path} does not exist; it should hold {holds}") from None
    except IsADirectoryError:
        raise error(f"{path} is a folder; expected a file with {holds}") from None
    except OSError as fault:
        raise error(f"{path} cannot be read ({fault.strerror}); it should hold {holds}") from None
    except UnicodeDecodeError as fault:
        raise error(f"{path} is not UTF-8 ({fault}); save it as UTF-8") from None
    except (ValueError, RecursionError) as fault:
        raise error(f"{path} cannot be read as {holds}: {fault}") from None


def read_csv(
    path: Path, columns: Sequence[str], wanted: str, error: type[UserError]
) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Yields the line number and the fields, by column, of every row that is not blank.

    Args:
        path: The file, UTF-8.
        columns: Required columns.
        wanted: End of the message about a missing column.
        error: Class of the errors.

    Yields:
        For a row with too few fields, or too many, a message in place of the fields.

    Raises:
        UserError: Of the class `error`, if a column is missing or is there twice, or if the file is
            not CSV.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, None) or []
            if missing := [column for column in columns if column not in header]:
                first = ",".join(header)
                if set(columns) <= set(re.split("[;\t]", first)):
                    wanted = "; separate the columns by commas"
                raise error(
                    f"{path} has no column {missing[0]!r}: its first line is {first!r}{wanted}"
                )
            if twice := [column for column in header if column and header.count(column) > 1]:
                raise error(f"{path} has two columns {twice[0]!r}; rename or remove one of them")
            for row in filter(None, reader):
                if len(row) == len(header):
                    yield reader.line_num, dict(zip(header, row, strict=True))
                else:
                    message = f"{path}:{reader.line_num}: {len(row)} fields, not {len(header)}"
                    yield reader.line_num, message
        except csv.Error as fault:
            advice = (
                "A caption that holds a comma or a quote must be in double quotes, with quotes "
                "inside it doubled"
            )
            if "field limit" in str(fault):
                advice = (
                    f"A field of this row is longer than {csv.field_size_limit():,} characters: "
                    "shorten it, or close a double quote that was left open"
                )
            raise error(f"{path}:{reader.line_num}: not valid CSV ({fault}). {advice}") from None
