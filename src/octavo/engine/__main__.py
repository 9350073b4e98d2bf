"""`python -m octavo.engine ADDRESS`: the engine process. Not for people; see worker.py."""

import sys

from octavo.engine.worker import main

sys.exit(main(sys.argv[1]))
