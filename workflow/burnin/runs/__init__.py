# SPDX-License-Identifier: Apache-2.0
"""A run on the nodes: its specification, its journal, the loop that fills its window, and what comes out of it."""
