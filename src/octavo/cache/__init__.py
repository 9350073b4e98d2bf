"""Paged KV cache bookkeeping: which block holds which tokens of which sequence.

Nothing here touches the memory behind a block id; the backend owns that.
"""

from octavo.cache.block_pool import BlockPool
from octavo.cache.fresh_blocks import GROUP_BLOCKS
from octavo.cache.kv_cache import BlockTable, KvCache
from octavo.cache.prefix_index import PrefixIndex, block_key, root_key

__all__ = [
    "GROUP_BLOCKS",
    "BlockPool",
    "BlockTable",
    "KvCache",
    "PrefixIndex",
    "block_key",
    "root_key",
]
