-- What each block of a metadata shard commits to: the root over all of its streams.
-- kind: event
-- key: chain, height
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.shard_roots (
  app_hash BINARY NOT NULL COMMENT 'App hash after the block, which the next header carries: state_root, or the placeholder of chains that still use it',
  state_root BINARY NOT NULL COMMENT 'Root of the sparse Merkle tree over all streams; zeros if there is none',
  stream_count BIGINT NOT NULL COMMENT 'Streams in the tree',
  tree_depth INT NOT NULL COMMENT 'Digits of the longest prefix in silver.shard_tree up to this block'
)
CLUSTER BY (_chain, _height);
