-- The sparse Merkle tree under the state root: its subtrees by the hex digits of the path that leads to them.
-- kind: state
-- key: chain, prefix
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.shard_tree (
  prefix STRING NOT NULL COMMENT 'First hex digits of the paths in the subtree; empty for the root',
  leaves BIGINT NOT NULL COMMENT 'Streams in the subtree',
  hash BINARY NOT NULL COMMENT 'Hash of the subtree; of the leaf if it is the only one',
  key BINARY COMMENT 'Id of the stream if it is the only one in the subtree',
  CONSTRAINT hash_is_32_bytes CHECK (length(hash) = 32)
)
CLUSTER BY (_chain, prefix);
