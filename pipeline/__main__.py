"""``python -m orograph`` is the command line."""

import sys

from orograph.cli.main import main

sys.exit(main())
