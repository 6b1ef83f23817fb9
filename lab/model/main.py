# SPDX-License-Identifier: Apache-2.0
"""Starts one program of the lab: `python3 -I -S main.py PROGRAM args ...` (see the shell files in lab/bin)."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])
from model.cli import main

main(sys.argv[1], sys.argv[2:])
