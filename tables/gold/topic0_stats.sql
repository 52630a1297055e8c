-- How common each event signature is: share of the last 50,000 blocks in which it occurs. A statistic, never a matter of answers.
-- kind: state
-- key: chain, topic0
-- stages: gold.logs
-- retention: 30 days
CREATE TABLE gold.topic0_stats (
  topic0 BINARY NOT NULL COMMENT 'First topic of the logs: the hash of the event signature',
  logs BIGINT NOT NULL COMMENT 'Logs with this signature in the window',
  blocks_with BIGINT NOT NULL COMMENT 'Blocks of the window in which it occurs',
  window_blocks BIGINT NOT NULL COMMENT 'Blocks in the window; it moves in steps of 1,000 blocks',
  share DOUBLE NOT NULL COMMENT 'blocks_with / window_blocks',
  mode STRING NOT NULL COMMENT 'hot (share above 1 %), cold (below 0.1 %); between the two it stays what it was',
  steps MAP<BIGINT, STRUCT<blocks: BIGINT, logs: BIGINT>> NOT NULL COMMENT 'Counts by step of 1,000 blocks',
  last_block BIGINT NOT NULL COMMENT 'Last block in which it occurred'
)
CLUSTER BY (_chain);
