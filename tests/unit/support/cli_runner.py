"""Runs commands of the CLI in this process, against a given server."""

import asyncio
from typing import Any

from tenure.faces.cli import main as cli


class CliRunner:
    """Runs each command in a thread, while the server runs in the event loop."""

    def __init__(self, address: str, token: str, monkeypatch: Any, capsys: Any) -> None:
        monkeypatch.setenv("TENURE_ADDRESS", address)
        monkeypatch.setenv("TENURE_TOKEN", token)
        self._capsys = capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        """The exit code, standard output and standard error."""
        self._capsys.readouterr()
        code = await asyncio.to_thread(cli.main, words)
        return (code, *self._capsys.readouterr())
