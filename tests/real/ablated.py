"""The command `tenure` with one safeguard of the restore taken out: `python ablated.py NAME …`.

Nothing of the product imports this, and no setting of it reaches what is done here.
"""

import sys
from contextlib import AbstractContextManager

from tenure.app import tokens
from tenure.app.hold import Hold
from tenure.faces.cli.main import main
from tenure.testing.patches import patched
from tenure.upkeep import restore

OFF: dict[str, AbstractContextManager[None]] = {
    "epoch_checked": patched(tokens, _is_current=lambda *_: True),
    "held_until_confirmed": patched(Hold, why=property(lambda _: "")),
    "providers_stay": patched(restore, is_sound=lambda *_: False),
}

if __name__ == "__main__":
    with OFF[sys.argv[1]]:
        sys.exit(main(sys.argv[2:]))
