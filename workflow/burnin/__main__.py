# SPDX-License-Identifier: Apache-2.0
"""`python -m burnin`: the same as the `burnin` command."""

from burnin.cli import main

main()
