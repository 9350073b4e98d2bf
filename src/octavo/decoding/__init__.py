"""How tokens are chosen: sampling parameters, the sampler, stop conditions, detokenization."""

from octavo.decoding.batch import ROW_ERRORS, SampleResult, SamplingBatch
from octavo.decoding.build import SamplingRow, build_batch, sample_seed
from octavo.decoding.detokenizer import Detokenizer
from octavo.decoding.grammar import Grammar
from octavo.decoding.grammar_lark import as_lark
from octavo.decoding.params import SamplingParams
from octavo.decoding.pooling import Pooling
from octavo.decoding.repetition import RepetitionDetection
from octavo.decoding.sample import sample_batch
from octavo.decoding.stops import StopMatcher
from octavo.decoding.thinking import ThinkingBudget

__all__ = [
    "ROW_ERRORS",
    "Detokenizer",
    "Grammar",
    "Pooling",
    "RepetitionDetection",
    "SampleResult",
    "SamplingBatch",
    "SamplingParams",
    "SamplingRow",
    "StopMatcher",
    "ThinkingBudget",
    "as_lark",
    "build_batch",
    "sample_batch",
    "sample_seed",
]
