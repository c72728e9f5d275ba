# SPDX-License-Identifier: Apache-2.0
"""`python -m tokenlight` is the `tokenlight` command."""

import sys

from tokenlight.cli import main

if __name__ == "__main__":
    sys.exit(main())
