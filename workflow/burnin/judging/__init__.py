# SPDX-License-Identifier: Apache-2.0
"""From results to outcomes: signatures (what a signal implicates), criteria (limits), the gate, the summary. Pure."""
