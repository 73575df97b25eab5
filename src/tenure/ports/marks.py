"""Marks: which agents have invocations under way, told between the processes of one plane."""

from typing import Protocol


class Marks(Protocol):
    """Every promise here is a test in `tests/unit/provider_host/test_marks.py`."""

    def put(self, agent: str) -> None:
        """This process has some under way: every other sees that from now on."""
        ...

    def lift(self, agent: str) -> None:
        """It has none any more.  A process that has ended has none either."""
        ...

    def cut(self, agent: str) -> None:
        """What others have under way is to end: every other sees that until it is spared."""
        ...

    def spare(self, agent: str) -> None:
        """Nothing more is to end."""
        ...

    def is_cut(self, agent: str) -> bool:
        """Whether another process wants what this one has under way to end."""
        ...

    def is_elsewhere(self, agent: str) -> bool:
        """Whether another process has some under way."""
        ...
