"""`python -m tenure` is the command line."""

import sys

from tenure.faces.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
