# SPDX-License-Identifier: Apache-2.0
"""The burn-in library: every decision of a campaign as a pure function, and thin adapters to the world."""
