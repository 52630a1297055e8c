-- Miniblocks that can no longer be had, and so were never delivered.
-- kind: event
-- key: chain, height, stream_id, from_miniblock
-- stages: gold.sync
-- retention: 30 days
CREATE TABLE gold.sync_gaps (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  from_miniblock BIGINT NOT NULL COMMENT 'First number that is missing',
  to_miniblock BIGINT NOT NULL COMMENT 'The number after the last that is missing',
  reason STRING NOT NULL COMMENT 'trimmed, not recorded, or diverged: a branch whose beginning the server no longer has'
)
CLUSTER BY (_chain, _height);
