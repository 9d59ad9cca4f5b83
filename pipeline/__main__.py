"""``python -m orograph`` is the command line."""

import sys

from orograph.cli import main

sys.exit(main())
