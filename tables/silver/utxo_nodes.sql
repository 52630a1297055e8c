-- The compact sparse Merkle tree over the UTxO set, in rows of sixteen ways: enough to compute roots and proofs of any block.
-- kind: state
-- key: chain, bucket, path
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.utxo_nodes (
  bucket STRING NOT NULL COMMENT 'The first 15 digits of the path at most: rows are looked up by it',
  path STRING NOT NULL COMMENT 'Hex digits that all keys under the row begin with; a key is the CBOR of a TxIn',
  node BINARY NOT NULL COMMENT 'The row; empty once it is gone'
)
CLUSTER BY (_chain, _height);
