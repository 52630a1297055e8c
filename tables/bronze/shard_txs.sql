-- Transactions of metadata shards, decoded and checked without looking at any stream (CheckTx).
-- kind: event
-- key: chain, height, tx_index
-- stages: bronze.shards
-- retention: 30 days
CREATE TABLE bronze.shard_txs (
  tx_index INT NOT NULL COMMENT 'Position in the block, from 0',
  hash BINARY NOT NULL COMMENT 'SHA-256 of the transaction',
  op STRING COMMENT 'create_stream, set_last_miniblocks or update_placement; NULL if it is none of them',
  code INT NOT NULL COMMENT 'Result of the stateless checks: 0, or 3 for a transaction that fails whatever the state is',
  message STRING NOT NULL COMMENT 'The first check that failed; empty if none',
  operations ARRAY<STRUCT<stream_id: BINARY, prev_miniblock_hash: BINARY, last_miniblock_hash: BINARY, last_miniblock_num: BIGINT, nodes: ARRAY<BINARY>, replication_factor: BIGINT, sealed: BOOLEAN>> NOT NULL COMMENT 'What it wants, one entry a stream; several for a batch of miniblocks; none if it failed the checks'
)
CLUSTER BY (_chain, _height);
