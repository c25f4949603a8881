# SPDX-License-Identifier: Apache-2.0
"""``python -m myops.cli``."""

from myops.cli import main

if __name__ == "__main__":
    main()
