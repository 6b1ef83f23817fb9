# SPDX-License-Identifier: Apache-2.0
"""The operator's commands that have more to say than a few lines; `burnin.cli` registers them."""
