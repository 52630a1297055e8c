"""The columns of views that people's queries name. More may come; none of these may go."""

import pytest

from chainlake.lake.ddl import load
from chainlake.lake.views import shown_columns
from chainlake.paths import tables_dir

RELIED_ON = {
    "raw.blocks": "chain height hash parent_hash timestamp payload source",
    "bronze.evm_logs": "chain log_id block_number block_hash block_timestamp transaction_hash transaction_index log_index address"
    " topic0 topic1 topic2 topic3 topic_count data",
    "silver.streams": "chain stream_id last_miniblock_hash last_miniblock_num replication_factor sealed nodes created_height"
    " updated_height",
    "silver.shard_tx_results": "chain height tx_index code log",
    "silver.shard_events": "chain height tx_index event_index type attributes",
    "silver.shard_roots": "chain height app_hash stream_count",
    "silver.utxos": "chain tx_id tx_index address lovelace assets datum_hash datum created_height",
    "silver.cage_events": "chain height tx_index event_index kind token_id request_tx_id request_tx_index",
    "silver.cage_tokens": "chain token_id owner root max_fee process_time retract_time created_height updated_height",
    "silver.cage_requests": "chain tx_id tx_index token_id owner key operation old_value new_value fee submitted_at",
    "silver.trie_facts": "chain token_id key value",
    "silver.chain_roots": "chain height utxo_root utxo_count",
    "silver.meta_objects": "chain kind id definition created_index updated_index",
    "silver.data_rows": "chain group_name table_id user_id primary_key row log_index",
    "silver.pending_commands": "chain group_name log_index log_term required_meta_index command",
    "silver.applied": "chain group_name applied_index applied_term",
    "gold.stream_sync_state": "chain stream_id snapshot_miniblock minipool_gen prev_miniblock_hash updated_at",
    "gold.notifications": "chain offset stream_id miniblock_num event_index event_hash payload historical duplicate",
}
LEDGER = (
    "stage lane chain seq commit_id kind base_height height block_hash roots inputs delta_versions rows epoch run_id why"
    " committed_at"
)


@pytest.mark.parametrize("view", RELIED_ON)
def test_a_view_has_the_columns_that_people_rely_on(view: str) -> None:
    assert set(RELIED_ON[view].split()) <= set(shown_columns(load(tables_dir())[view]))


def test_the_ledger_has_the_columns_that_people_rely_on() -> None:
    ledger = load(tables_dir())["control.ledger"]
    assert set(LEDGER.split()) <= {column.name for column in ledger.columns}
