# SPDX-License-Identifier: Apache-2.0
"""The simulated cluster behind the programs in `lab/bin` and `lab/slurm`.

Everything a tool prints is a function of (scenario, node, that node's events, seeded noise). The modules import as
little of the standard library as they can (no json, re, argparse, subprocess): a burn-in calls these programs
thousands of times, and Python's start is what they cost.
"""
