"""Disks of their own for tests that fill them or make them read-only."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_disk(size: str) -> Iterator[Path]:
    """A disk of this size, gone afterwards; skips where nobody may mount one."""
    if os.geteuid() != 0:
        pytest.skip("a disk can be mounted by root alone")
    folder = Path(tempfile.mkdtemp())
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tenure-test", str(folder)], check=True
    )
    try:
        yield folder
    finally:
        _unmount(folder)
        folder.rmdir()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Whoever opens a file of this folder finds it on a read-only file system."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    """Detach a mount, also one that a server which a failed test left behind still uses.

    The kernel frees a detached file system when the last process has closed its files.
    """
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
