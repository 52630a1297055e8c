-- Streams of metadata shards as of the last block: where they are and what their last miniblock is.
-- kind: state
-- key: chain, stream_id
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.streams (
  stream_id BINARY NOT NULL COMMENT 'Id of the stream, 32 bytes; the first is its type',
  last_miniblock_hash BINARY NOT NULL COMMENT 'Hash of the last miniblock',
  last_miniblock_num BIGINT NOT NULL COMMENT 'Number of the last miniblock',
  nodes ARRAY<INT> NOT NULL COMMENT 'Permanent indexes of its nodes, in order; silver.shard_nodes has their addresses',
  replication_factor INT NOT NULL COMMENT 'Copies wanted, at most the number of nodes',
  sealed BOOLEAN NOT NULL COMMENT 'No miniblock may follow',
  created_height BIGINT NOT NULL COMMENT 'Block that created the stream',
  updated_height BIGINT NOT NULL COMMENT 'Last block that changed it',
  CONSTRAINT stream_id_is_32_bytes CHECK (length(stream_id) = 32)
)
CLUSTER BY (_chain);
