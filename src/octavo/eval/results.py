"""What an evaluation says, with every number defined once. Natural logarithms throughout.

NLL             -log of the probability given to the token that follows, averaged over tokens
perplexity      exp(NLL): among how many equally likely tokens the model is undecided
KL              sum over tokens of p * log(p / q): what is lost by predicting with the
                candidate q where the reference says p; 0 means the same distribution
agreement       share of places where both find the same token most likely
standard error  of a mean over n scored tokens: their standard deviation / sqrt(n), taking
                tokens for independent draws
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields

import numpy as np

from octavo.eval.metrics import Doubles


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, values: Doubles) -> Estimate:
        """values: one a token; a single one has an unknown error, infinity."""
        n = len(values)
        error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
        return cls(float(values.mean()), error)


@dataclass(frozen=True)
class Perplexity:
    """How well a text is predicted. num_tokens: scored tokens."""

    num_tokens: int
    nll: Estimate

    @classmethod
    def of(cls, nll: Doubles) -> Perplexity:
        """nll: one a scored token."""
        return cls(len(nll), Estimate.of(nll))

    @property
    def perplexity(self) -> Estimate:
        """The error follows from that of the NLL, to first order."""
        value = math.exp(self.nll.mean)
        return Estimate(value, value * self.nll.stderr)

    def as_dict(self) -> dict[str, object]:
        """Plain data for a JSON file."""
        return {**asdict(self), "perplexity": asdict(self.perplexity)}


@dataclass(frozen=True)
class Divergence:
    """How far a candidate strays from a reference.

    excess: NLL of the candidate minus that of the reference, token by token; exp(excess.mean) is
    the ratio of perplexities, known far better than either of them. token_kl: every KL, one a
    scored token, for comparing two candidates token by token.
    """

    name: str
    num_tokens: int
    kl: Estimate
    kl_median: float
    kl_p99: float
    kl_max: float
    agreement: Estimate
    candidate: Perplexity
    reference: Perplexity
    excess: Estimate
    token_kl: Doubles = field(repr=False, compare=False)

    @classmethod
    def of(
        cls, name: str, kl: Doubles, agrees: Doubles, nll: Doubles, reference_nll: Doubles
    ) -> Divergence:
        """All arrays: one number a scored token."""
        median, p99 = np.percentile(kl, (50, 99))
        return cls(
            name=name,
            num_tokens=len(kl),
            kl=Estimate.of(kl),
            kl_median=float(median),
            kl_p99=float(p99),
            kl_max=float(kl.max()),
            agreement=Estimate.of(agrees),
            candidate=Perplexity.of(nll),
            reference=Perplexity.of(reference_nll),
            excess=Estimate.of(nll - reference_nll),
            token_kl=kl,
        )

    def kl_beyond(self, other: Divergence) -> Estimate:
        """This KL minus another candidate's on the same tokens; the error is that of the pairs."""
        return Estimate.of(self.token_kl - other.token_kl)

    def as_dict(self) -> dict[str, object]:
        """Plain data for a JSON file; token_kl is left out."""
        data = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "token_kl"}
        for name, value in data.items():
            if isinstance(value, Perplexity):
                data[name] = value.as_dict()
            elif isinstance(value, Estimate):
                data[name] = asdict(value)
        return data
