-- Blocks of metadata shards: what their headers say, and what the chain reported of their transactions.
-- kind: event
-- key: chain, height
-- stages: bronze.shards
-- retention: 30 days
CREATE TABLE bronze.shard_blocks (
  hash BINARY NOT NULL COMMENT 'Hash of the block',
  timestamp TIMESTAMP COMMENT 'Time of the block',
  chain_id STRING COMMENT 'Chain id in the header, like metadata-shard- and 16 hex digits',
  app_hash BINARY COMMENT 'App hash in the header: what the chain says of the state before this block; NULL if it says nothing',
  proposer BINARY COMMENT 'Address of the validator that proposed it',
  tx_count INT NOT NULL COMMENT 'Transactions in the block',
  results STRING COMMENT 'The answer of /block_results as JSON, where it was given; NULL otherwise'
)
CLUSTER BY (_chain, _height);
