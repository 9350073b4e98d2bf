"""Paging, sharing, copy-on-write and the prefix index, by example."""

import pytest

from octavo.cache import BlockPool, BlockTable, KvCache, block_key, root_key


def filled(cache: KvCache, ids: list[int], salt: str = "") -> BlockTable:
    """A table whose ids are computed."""
    table = cache.new_table(salt)
    cache.allocate(table, 0, len(ids))
    cache.commit(table, ids, len(ids))
    return table


def test_pool_takes_fresh_blocks_before_cached_ones_and_evicts_the_oldest() -> None:
    pool = BlockPool(3)
    a, b = pool.allocate(), pool.allocate()
    for block in (a, b):
        pool.index.add(block_key(root_key(""), [block]), block)
        pool.release(block)
    assert pool.num_cached == 2
    assert pool.allocate() == 2  # the fresh one
    assert pool.allocate() == a  # then the least recently used
    assert pool.index.find(block_key(root_key(""), [a])) is None
    assert pool.index.find(block_key(root_key(""), [b])) == b


def test_pool_refuses_a_release_without_reference_and_an_allocation_when_empty() -> None:
    pool = BlockPool(1)
    with pytest.raises(ValueError, match="block 0"):
        pool.release(0)
    pool.allocate()
    with pytest.raises(IndexError, match="no free block"):
        pool.allocate()


def test_keys_depend_on_parent_ids_and_salt() -> None:
    root = root_key("")
    keys = [block_key(root, [1, 2]), block_key(root, [1, 3]), block_key(root_key("x"), [1, 2])]
    keys.append(block_key(keys[0], [1, 2]))
    assert len(set(keys)) == 4
    assert block_key(root, [1, 2]) == keys[0]


def test_where_prompts_differ_a_block_serves_those_alone_that_compute_it_the_same_way() -> None:
    cache, ids = KvCache(8, block_size=4), list(range(20))
    first = cache.new_table(num_prompt=6)
    cache.allocate(first, 0, 16)
    cache.commit(first, ids, 16)
    found = [cache.match(cache.new_table(num_prompt=n), ids) for n in (3, 4, 5, 6, 7, 8, 20)]
    assert [len(blocks) for blocks in found] == [0, 1, 1, 4, 1, 1, 1]
    assert cache.match(cache.new_table(), ids) == first.blocks[:1]


def test_a_freed_prefix_is_found_again_and_its_last_token_left_to_compute() -> None:
    cache = KvCache(8, block_size=4)
    ids = list(range(12))
    table = filled(cache, ids)
    blocks = list(table.blocks)
    cache.free(table)
    new = cache.new_table
    assert cache.match(new(), ids) == blocks[:2]  # 8 of 12 tokens: the last block holds the last
    assert cache.match(new(), [*ids, 99]) == blocks
    assert cache.match(new(), [*ids[:4], 99, *ids[5:]]) == blocks[:1]


def test_blocks_are_indexed_only_once_computed() -> None:
    cache = KvCache(8, block_size=4)
    ids = list(range(9))
    table = cache.new_table()
    cache.allocate(table, 0, len(ids))
    assert cache.match(cache.new_table(), ids) == []
    cache.commit(table, ids, 7)
    assert cache.match(cache.new_table(), ids) == table.blocks[:1]


def test_salt_and_opting_out_keep_apart() -> None:
    cache = KvCache(8, block_size=4)
    ids = list(range(9))
    filled(cache, ids, salt="a")
    assert cache.match(cache.new_table("a"), ids) != []
    assert cache.match(cache.new_table("b"), ids) == []
    assert cache.match(cache.new_table("a", use_index=False), ids) == []
    off = KvCache(8, block_size=4, prefix_caching=False)
    filled(off, ids)
    assert off.match(off.new_table(), ids) == []


def test_freed_sequences_lose_their_tail_first() -> None:
    cache = KvCache(3, block_size=4)
    ids = list(range(13))
    cache.free(filled(cache, ids[:12]))
    cache.allocate(cache.new_table(), 0, 4)  # evicts one block
    assert len(cache.match(cache.new_table(), ids)) == 2


def test_a_fork_shares_everything_and_copies_the_partial_block_on_write() -> None:
    cache = KvCache(8, block_size=4)
    ids = list(range(6))
    parent = filled(cache, ids)
    children = [cache.new_table() for _ in range(2)]
    for child in children:
        cache.fork(parent, child, len(ids))
    assert cache.pool.num_free == 6
    for table in (parent, *children):
        assert table.capacity == 4  # the partial block may not be written unasked
        assert cache.can_allocate(table, 6, 7)
        cache.allocate(table, 6, 7)
    shared = children[1].blocks[1]  # the last writer keeps the original
    assert cache.copies == [(shared, parent.blocks[1]), (shared, children[0].blocks[1])]
    assert len({t.blocks[0] for t in (parent, *children)}) == 1
    assert len({t.blocks[1] for t in (parent, *children)}) == 3


def test_a_fork_at_a_block_boundary_copies_nothing() -> None:
    cache = KvCache(8, block_size=4)
    parent, child = filled(cache, list(range(8))), cache.new_table()
    cache.fork(parent, child, 8)
    cache.allocate(child, 8, 9)
    cache.allocate(parent, 8, 9)
    assert cache.copies == []
    assert parent.blocks[:2] == child.blocks[:2]
    assert parent.blocks[2] != child.blocks[2]


def test_a_copy_into_a_freed_table_is_dropped() -> None:
    cache = KvCache(8, block_size=4)
    parent, child = filled(cache, list(range(6))), cache.new_table()
    cache.fork(parent, child, 6)
    cache.allocate(child, 6, 7)
    cache.free(child)
    assert cache.copies == []


def test_copying_counts_as_a_missing_block() -> None:
    cache = KvCache(2, block_size=4)
    parent, child = filled(cache, list(range(6))), cache.new_table()
    cache.fork(parent, child, 6)
    assert cache.num_missing(child, 6, 7) == 1
    assert not cache.can_allocate(child, 6, 7)


def test_tables_must_be_empty_to_attach_or_fork() -> None:
    cache = KvCache(8, block_size=4)
    table = filled(cache, list(range(6)))
    with pytest.raises(ValueError, match="already holds"):
        cache.attach(table, [])
    with pytest.raises(ValueError, match="already holds"):
        cache.fork(table, table, 6)


def test_clear_forgets_prefixes_and_keeps_what_is_in_use() -> None:
    cache = KvCache(8, block_size=4)
    ids = list(range(9))
    held, freed = filled(cache, ids), filled(cache, [7, *ids])
    cache.free(freed)
    cache.clear()
    assert cache.match(cache.new_table(), ids) == []
    assert cache.pool.num_free == 5
    cache.free(held)
    cache.pool.check()
    assert cache.pool.num_free == 8
