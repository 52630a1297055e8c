-- Cardano chains block by block: the root and size of the UTxO set after it. The last row is the checkpoint of the indexer.
-- kind: event
-- key: chain, height
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.chain_roots (
  utxo_root BINARY COMMENT 'Root of the compact sparse Merkle tree over the UTxO set; NULL if it is empty',
  utxo_count BIGINT NOT NULL COMMENT 'Unspent outputs',
  created INT NOT NULL COMMENT 'Outputs of the block that outlived it; with those before the first block in its row',
  spent INT NOT NULL COMMENT 'Outputs of earlier blocks that it spent',
  unresolved INT NOT NULL COMMENT 'Spent outputs that were not known',
  block_hash BINARY NOT NULL COMMENT 'Hash of the block',
  slot BIGINT COMMENT 'Slot of the block'
)
CLUSTER BY (_chain, _height);
