# SPDX-License-Identifier: Apache-2.0
"""The whole way of an operator in one command: train, export, run, verify, measure."""

#from myops.demo.run import DemoResult, run_demo

__all__ = ["DemoResult", "run_demo"]
