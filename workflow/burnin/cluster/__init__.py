# SPDX-License-Identifier: Apache-2.0
"""The cluster's batch system: what its commands print, and the thin layer that calls them."""
