-- Transactions of the blocks as received: receipts or logs (evm), tx bytes (comet), bodies (cardano), entries (raft),
-- miniblocks (river).
-- kind: event
-- key: chain, height, tx_index
-- stages: raw.logs, raw.shards, raw.cage, raw.replica, raw.sync
-- retention: 30 days
CREATE TABLE raw.transactions (
  block_hash BINARY NOT NULL COMMENT 'Hash of the block',
  parent_hash BINARY NOT NULL COMMENT 'Hash of the block before it',
  timestamp TIMESTAMP COMMENT 'Time of the block',
  tx_index INT NOT NULL COMMENT 'Position in the block, from 0',
  hash BINARY NOT NULL COMMENT 'Hash of the transaction',
  payload BINARY NOT NULL COMMENT 'The transaction as received',
  source STRING NOT NULL COMMENT 'File, directory or URL that the block was read from',
  position BIGINT NOT NULL COMMENT 'Where in the source the block starts'
)
CLUSTER BY (_chain, _height);
