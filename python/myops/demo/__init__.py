# SPDX-License-Identifier: Apache-2.0
"""The whole way of an operator in one command: train, export, run, verify, measure."""

from myops.demo.report import DemoResult
from myops.demo.run import run_demo

__all__ = ["DemoResult", "run_demo"]
