-- Where the logs of each block are in the global numbering: a range of blocks is a range of log ids.
-- kind: event
-- key: chain, height
-- stages: gold.logs
-- retention: 30 days
CREATE TABLE gold.block_meta (
  block_number BIGINT NOT NULL COMMENT 'Block',
  hash BINARY NOT NULL COMMENT 'Hash of the block',
  parent_hash BINARY NOT NULL COMMENT 'Hash of the block before it',
  timestamp TIMESTAMP COMMENT 'Time of the block',
  first_log_id BIGINT NOT NULL COMMENT 'log_id of its first log; of the next log to come if it has none',
  log_count INT NOT NULL COMMENT 'Logs in the block'
)
CLUSTER BY (_chain, _height);
