-- Results of the transactions of metadata shards, as FinalizeBlock answers them.
-- kind: event
-- key: chain, height, tx_index
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.shard_tx_results (
  tx_index INT NOT NULL COMMENT 'Position in the block, from 0',
  code INT NOT NULL COMMENT 'Code in the codespace towns, 0 for success; a batch of miniblocks is OK even if all of them failed',
  log STRING NOT NULL COMMENT 'Name of the code',
  message STRING NOT NULL COMMENT 'The rule that was broken; empty for success. The chain does not tell it'
)
CLUSTER BY (_chain, _height);
