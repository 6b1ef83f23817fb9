#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NeMo's question answering example, as the lab has it: `python question_answering.py key=value ...`."""

import os
import sys

if os.environ.get("BURNIN_LAB"):
    sys.pycache_prefix = os.environ.get("BURNIN_LAB_PYCACHE") or os.path.join(os.environ["BURNIN_LAB"], ".pycache")
else:
    sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
from model.cli import main

main("question_answering.py", sys.argv[1:])
