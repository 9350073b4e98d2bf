"""Who is owed service: weighted virtual token counters.

After "Fairness in Serving Large Language Models" (Sheng et al., OSDI 2024): each tenant has a
counter of the tokens it was given, divided by its weight, and the waiting tenant with the smallest
counter is next. A tenant that had nothing waiting begins again at the smallest counter of those
that wait, so that nobody saves up service by staying away, and nobody pays for having had the
machine alone.
"""

from __future__ import annotations

from collections.abc import Mapping

PROMPT_COST = 1.0  # of a token computed from a prompt
OUTPUT_COST = 2.0  # of a token generated
MAX_ACCOUNTS = 4096  # tenants remembered while they have nothing to do


class Account:
    """One tenant. counter: weighted tokens served. turn: when it was last served, to break ties.
    num_waiting: sequences in the queue; num_rows: rows of the batch it holds."""

    __slots__ = ("counter", "name", "num_rows", "num_waiting", "output_cost", "turn", "weight")

    def __init__(self, name: str, weight: float) -> None:
        self.name, self.weight = name, weight
        self.counter = 0.0
        self.turn = 0
        self.num_waiting = 0
        self.num_rows = 0
        self.output_cost = OUTPUT_COST / weight

    @property
    def order(self) -> tuple[float, int]:
        """Smallest first in line. It only ever grows."""
        return self.counter, self.turn

    @property
    def is_active(self) -> bool:
        """Whether it waits for anything or holds anything."""
        return self.num_waiting > 0 or self.num_rows > 0

    def charge_prompt(self, num_tokens: int) -> None:
        """So many tokens of a prompt have been computed."""
        self.counter += PROMPT_COST * num_tokens / self.weight


class Ledger:
    """All accounts."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        self._accounts: dict[str, Account] = {}
        self._floor = 0.0
        self._turns = 0
        self.num_active = 0  # accounts that wait for something or hold something
        self.active_weight = 0.0  # their weights

    def account(self, name: str) -> Account:
        """A tenant's account, opened if there is none."""
        found = self._accounts.get(name)
        if found is None:
            if len(self._accounts) >= MAX_ACCOUNTS:
                self._forget_idle()
            found = self._accounts[name] = Account(name, self._weights.get(name, 1.0))
            found.counter = self._floor
        return found

    def count(self, account: Account, waiting: int = 0, rows: int = 0) -> None:
        """An account has so many more sequences in the queue, or rows."""
        was_active = account.is_active
        account.num_waiting += waiting
        account.num_rows += rows
        change = account.is_active - was_active
        self.num_active += change
        self.active_weight = (
            self.active_weight + change * account.weight if self.num_active else 0.0
        )

    def lift(self, account: Account, least: float | None) -> None:
        """An account has got something to wait for. least: the smallest counter of those that
        waited before; None if nobody did."""
        if least is not None:
            self._floor = max(self._floor, least)
        account.counter = max(account.counter, self._floor)

    def serve(self, account: Account) -> None:
        """An account, the smallest of those that wait, is served now."""
        self._floor = max(self._floor, account.counter)
        self._turns += 1
        account.turn = self._turns

    def _forget_idle(self) -> None:
        self._accounts = {n: a for n, a in self._accounts.items() if a.is_active}
