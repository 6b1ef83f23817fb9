# SPDX-License-Identifier: Apache-2.0
"""Errors that stop a campaign. Each carries the cure; the command line maps them to exit statuses in one place."""

from __future__ import annotations


class CampaignError(Exception):
    """Something stops the campaign itself (never: broken hardware, which is a result).

    `cure` says in one sentence what the operator does about it.
    """

    exit_status = 1

    def __init__(self, message: str, cure: str = "") -> None:
        self.message = message
        self.cure = cure
        super().__init__(f"{message}\n  What to do: {cure}" if cure else message)


class ConfigError(CampaignError):
    """The configuration is refused: names the key, the value, what was expected and the cure."""

    exit_status = 2

    def __init__(self, key: str, value: object, expected: str, cure: str) -> None:
        self.key, self.value, self.expected = key, value, expected
        shown = repr(value) if len(repr(value)) <= 200 else repr(value)[:197] + "..."
        super().__init__(f"config key '{key}' is {shown}; expected {expected}.", cure)


class EvidenceError(CampaignError):
    """A file that the campaign itself wrote cannot be trusted (cut, edited, wrong schema)."""
