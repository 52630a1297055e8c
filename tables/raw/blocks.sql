-- Blocks exactly as they were received, linked by parent hash without gaps.
-- kind: event
-- key: chain, height
-- stages: raw.logs, raw.shards, raw.cage, raw.replica, raw.sync
-- retention: 30 days
CREATE TABLE raw.blocks (
  hash BINARY NOT NULL COMMENT 'Hash of the block',
  parent_hash BINARY NOT NULL COMMENT 'Hash of the block before it; zeros for the first',
  timestamp TIMESTAMP COMMENT 'Time that the block states, where it has one',
  payload BINARY NOT NULL COMMENT 'The block as received: JSON or CBOR, by kind of chain',
  source STRING NOT NULL COMMENT 'File, directory or URL that it was read from',
  position BIGINT NOT NULL COMMENT 'Where in the source it starts; reading resumes after it',
  CONSTRAINT hash_present CHECK (length(hash) > 0)
)
CLUSTER BY (_chain, _height);
