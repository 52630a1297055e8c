-- Blocks of the test chain.
-- kind: event
-- key: chain, height
-- stages: raw.test
-- retention: 30 days
CREATE TABLE raw.test_blocks (
  hash BINARY NOT NULL COMMENT 'Hash',
  salt BIGINT NOT NULL COMMENT 'What the payments of the block are made from'
)
CLUSTER BY (_chain, _height);
