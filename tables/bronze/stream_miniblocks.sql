-- Miniblocks of streams as they came, checked one by one. What came twice is here twice.
-- kind: event
-- key: chain, height, tx_index
-- stages: bronze.sync
-- retention: 30 days
CREATE TABLE bronze.stream_miniblocks (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  tx_index INT NOT NULL COMMENT 'Place in the pass, as in raw.transactions',
  miniblock_num BIGINT NOT NULL COMMENT 'Number; -1 if it cannot be read',
  miniblock_hash BINARY NOT NULL COMMENT 'Hash that the header states; empty if it cannot be read',
  prev_miniblock_hash BINARY NOT NULL COMMENT 'Hash of the miniblock before, as the header states it',
  timestamp TIMESTAMP COMMENT 'Time that the header states',
  has_snapshot BOOLEAN NOT NULL COMMENT 'It carries a snapshot',
  event_count INT NOT NULL COMMENT 'Events in it, its header aside',
  problem STRING COMMENT 'What is wrong with it; NULL if it is sound'
)
CLUSTER BY (_chain, _height);
