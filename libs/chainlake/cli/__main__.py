"""`python -m chainlake.cli`: the `lake` command where its script is not installed, such as in a workspace's terminal."""

import sys

from chainlake.cli.main import main

sys.exit(main())
