"""What is typed at a terminal that knows the server: the whole command, in this process."""

import asyncio
from typing import Any

from tenure.faces.cli import main as cli


class Typed:
    """A terminal; what it is given is run in a thread, while the server runs in the loop."""

    def __init__(self, address: str, token: str, monkeypatch: Any, capsys: Any) -> None:
        monkeypatch.setenv("TENURE_ADDRESS", address)
        monkeypatch.setenv("TENURE_TOKEN", token)
        self._capsys = capsys

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        """The exit code, standard output and standard error."""
        self._capsys.readouterr()
        code = await asyncio.to_thread(cli.main, words)
        return (code, *self._capsys.readouterr())
