"""What the tests of the command line share."""

import pytest

from tests.unit.support.cli_runner import CliRunner


@pytest.fixture
def typing(monkeypatch, capsys):
    """Makes a terminal for somebody of a role."""

    def at(face, address, role="operator"):
        return CliRunner(address, face.tokens[role], monkeypatch, capsys)

    return at
