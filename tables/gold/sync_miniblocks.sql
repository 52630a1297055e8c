-- The miniblocks that were delivered: what server and lake have in common is looked up here.
-- kind: event
-- key: chain, height, tx_index
-- stages: gold.sync
-- retention: 30 days
CREATE TABLE gold.sync_miniblocks (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  tx_index INT NOT NULL COMMENT 'Place in the pass, as in raw.transactions',
  miniblock_num BIGINT NOT NULL COMMENT 'Number',
  miniblock_hash BINARY NOT NULL COMMENT 'Hash',
  timestamp TIMESTAMP COMMENT 'Time that its header states',
  passed_at TIMESTAMP COMMENT 'When the pass was made; NULL for recordings',
  delivered BOOLEAN NOT NULL COMMENT 'False for a genesis that only serves to know the stream by',
  historical BOOLEAN NOT NULL COMMENT 'It comes from a gap or a catch-up',
  duplicate BOOLEAN NOT NULL COMMENT 'It may have been delivered before'
)
CLUSTER BY (_chain, _height);
