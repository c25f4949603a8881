# SPDX-License-Identifier: Apache-2.0
"""The next operator: in this source tree, or in a project of its own. See ``myops new --help``."""

from __future__ import annotations

from myops.scaffold.in_tree import new_operator
from myops.scaffold.names import Names, parse_attributes
from myops.scaffold.project import new_project

__all__ = ["Names", "new_operator", "new_project", "parse_attributes"]
