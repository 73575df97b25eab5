"""If the disk fails while a file is opened, the error is a sentence of ours."""

import os
import resource
from pathlib import Path

import pytest

from tenure.core.errors import StoreError
from tenure.sqlite import durable_file, location


def test_a_lock_that_cannot_be_written_is_refused_and_let_go(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreError, match=r"db\.lock cannot be written .* was not touched"):
            location.Lock.take(tmp_path / "a.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    lock = location.Lock.take(tmp_path / "a.db")
    assert Path(f"{tmp_path}/a.db.lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_file_that_cannot_be_made_is_refused(tmp_path):
    """A folder stands for whatever else is in the way at the last moment."""
    with pytest.raises(StoreError, match=r"cannot be opened \(Is a directory\): no record was"):
        durable_file._open(tmp_path, [], durable_file.APPLICATION_ID)
