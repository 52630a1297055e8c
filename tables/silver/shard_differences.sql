-- Where our results differ from those that the chain reported in /block_results. Empty is what one wants.
-- kind: event
-- key: chain, height, difference
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.shard_differences (
  difference INT NOT NULL COMMENT 'Number of the difference in its block, from 0',
  tx_index INT COMMENT 'Transaction; NULL for the block as a whole',
  event_index INT COMMENT 'Event of the transaction; NULL if it is not about one',
  what STRING NOT NULL COMMENT 'app_hash, transaction, code, log, codespace, event, or results if the report itself is unreadable',
  ours STRING COMMENT 'What we have; NULL if nothing',
  theirs STRING COMMENT 'What the chain has; NULL if nothing'
)
CLUSTER BY (_chain, _height);
