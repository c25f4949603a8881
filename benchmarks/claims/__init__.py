# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share.

A script is a ``Script``: claims, and a function that makes the cases of one contest.
``contest_script`` puts the two together: it times the cases against each other and judges the
claims by them.
"""

from claims.measure import Contest, Setup, contest_script
from claims.model import LARGE, Claim, Goal, Row, Script, Settings
from claims.script import main

__all__ = [
    "LARGE",
    "Claim",
    "Contest",
    "Goal",
    "Row",
    "Script",
    "Settings",
    "Setup",
    "contest_script",
    "main",
]
