# SPDX-License-Identifier: Apache-2.0
"""Slurm: reading the state of nodes and jobs, draining what is ours. The only place that talks to it."""
