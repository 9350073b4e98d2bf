"""One step's sampling work as structure-of-arrays, ready for the native sampler. R rows."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class SamplingBatch(Struct):
    """Row r draws one token from logits row r. All arrays C-contiguous.

    Random numbers are counter-based: a row's draw depends on (seed[r], counter[r]) alone, where
    counter is the index of the token within its output. History arrays are CSR: row r's ids are
    history[history_start[r]:history_start[r+1]], of which the first prompt_count[r] are prompt
    (repetition penalty counts both; presence and frequency count output only).
    banned ids get -inf (min_tokens bans the stop ids). Biases are added before everything else.
    """

    temperature: NDArray[np.float32]  # [R]; 0 = greedy
    top_k: NDArray[np.int32]  # [R]; 0 = off
    top_p: NDArray[np.float32]  # [R]
    min_p: NDArray[np.float32]  # [R]
    repetition_penalty: NDArray[np.float32]  # [R]; 1 = off
    presence_penalty: NDArray[np.float32]  # [R]; 0 = off
    frequency_penalty: NDArray[np.float32]  # [R]; 0 = off
    seed: NDArray[np.uint64]  # [R]
    counter: NDArray[np.int32]  # [R]
    num_logprobs: NDArray[np.int32]  # [R]; -1 = none, n = chosen + n best
    history: NDArray[np.int32]
    history_start: NDArray[np.int32]  # [R + 1]
    prompt_count: NDArray[np.int32]  # [R]
    bias_ids: NDArray[np.int32]
    bias_values: NDArray[np.float32]
    bias_start: NDArray[np.int32]  # [R + 1]
    banned: NDArray[np.int32]
    banned_start: NDArray[np.int32]  # [R + 1]
    listed: NDArray[np.int32]  # ids whose logprobs are wanted besides
    listed_start: NDArray[np.int32]  # [R + 1]
    mask: NDArray[np.uint32] | None = None  # [R, ceil(V / 32)] allowed bits; None = all allowed


ROW_ERRORS = {
    -1: "sampler: the model's logits hold NaN or infinity",
    -2: "sampler: no token is allowed here: all are masked, banned or -inf",
    -3: "sampler: a history, bias, banned or listed token id is outside the vocabulary",
}


class SampleResult(Struct):
    """logprobs are log-softmax of the raw logits (vLLM's "raw_logprobs"). NaN-free.

    top_ids / top_logprobs have N = max(num_logprobs) columns, best first, padded with -1 / -inf;
    listed_logprobs has a column for each id that a row lists, in the row's order, padded likewise.
    rank is the chosen token's 1-based rank among raw logits (0 where not asked). Ties are ordered
    by id, so the chosen token stands in its top list at its rank.
    A negative id is a key of ROW_ERRORS: that row could not be sampled, the others are good.
    """

    ids: NDArray[np.int32]  # [R]
    logprobs: NDArray[np.float32]  # [R]; 0 where not asked
    ranks: NDArray[np.int32]  # [R]
    top_ids: NDArray[np.int32]  # [R, N]
    top_logprobs: NDArray[np.float32]  # [R, N]
    listed_logprobs: NDArray[np.float32]  # [R, the most that a row lists]

    def error(self, row: int) -> str | None:
        """Why the row has no token, or None if it has one."""
        token = int(self.ids[row])
        return None if token >= 0 else ROW_ERRORS[token]
