"""Which fresh block comes next: neighbours for a sequence, a group of its own for a long one."""

from hypothesis import given
from hypothesis import strategies as st

from octavo.cache import GROUP_BLOCKS, KvCache
from octavo.cache.fresh_blocks import FreshBlocks


def test_long_sequences_have_adjacent_blocks() -> None:
    cache = KvCache(8 * GROUP_BLOCKS, block_size=1)
    tables = [cache.new_table() for _ in range(4)]
    for length in (GROUP_BLOCKS, 2 * GROUP_BLOCKS):
        for table in tables:
            cache.allocate(table, length - GROUP_BLOCKS, length)
    for table in tables:
        for run in (table.blocks[:GROUP_BLOCKS], table.blocks[GROUP_BLOCKS:]):
            assert run == list(range(run[0], run[0] + GROUP_BLOCKS))


def test_short_sequences_share_the_memory_of_a_group() -> None:
    cache = KvCache(4 * GROUP_BLOCKS, block_size=1)
    tables = [cache.new_table() for _ in range(4)]
    for table in tables:
        cache.allocate(table, 0, 4)
    assert [block for table in tables for block in table.blocks] == list(range(16))


def test_a_pool_without_a_whole_group_left_gives_what_there_is() -> None:
    fresh = FreshBlocks(2 * GROUP_BLOCKS)
    first, second = (fresh.take(None, GROUP_BLOCKS) for _ in range(2))
    assert [first, second] == [0, GROUP_BLOCKS]
    rest = {fresh.take(None) for _ in range(2 * GROUP_BLOCKS - 2)}
    assert rest | {first, second} == set(range(2 * GROUP_BLOCKS))
    assert not fresh


def test_touched_memory_is_taken_again_before_untouched() -> None:
    cache = KvCache(4 * GROUP_BLOCKS, block_size=1, prefix_caching=False)
    for _ in range(10):
        table = cache.new_table()
        cache.allocate(table, 0, 5)
        assert table.blocks == [0, 1, 2, 3, 4]
        cache.free(table)


def test_blocks_evicted_together_come_in_order() -> None:
    cache = KvCache(6, block_size=1)
    table = cache.new_table()
    cache.allocate(table, 0, 6)
    cache.commit(table, list(range(6)), 6)
    cache.free(table)  # cached, the last block the oldest
    new = cache.new_table()
    cache.allocate(new, 0, 3)
    assert new.blocks == [3, 4, 5]


@given(st.integers(1, 70), st.data())
def test_every_block_is_handed_out_once(num_blocks: int, data: st.DataObject) -> None:
    fresh, taken = FreshBlocks(num_blocks), set[int]()
    for _ in range(3 * num_blocks):
        if fresh and (not taken or data.draw(st.booleans())):
            after = data.draw(st.sampled_from(sorted(taken))) if taken else None
            block = fresh.take(after, data.draw(st.integers(1, 20)))
            assert block not in taken
            taken.add(block)
        else:
            block = data.draw(st.sampled_from(sorted(taken)))
            taken.remove(block)
            fresh.add(block)
        assert set(fresh) | taken == set(range(num_blocks))
        assert not set(fresh) & taken
