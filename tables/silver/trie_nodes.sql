-- The tries of the cage in rows of sixteen ways: enough to go on from and to prove any key at any block.
-- kind: state
-- key: chain, token_id, bucket, path
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.trie_nodes (
  token_id BINARY NOT NULL COMMENT 'Token that the trie belongs to',
  bucket STRING NOT NULL COMMENT 'The first eight digits of the path at most: rows are looked up by it',
  path STRING NOT NULL COMMENT 'Hex digits that the hashes of all keys under the row begin with',
  node BINARY NOT NULL COMMENT 'The row; empty once it is gone'
)
CLUSTER BY (_chain, _height);
