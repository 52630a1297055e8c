-- Unspent outputs of Cardano chains. History has every one that lived past its block, with the block in which it was spent.
-- kind: state
-- key: chain, tx_id, tx_index
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.utxos (
  tx_id BINARY NOT NULL COMMENT 'Transaction that made the output',
  tx_index INT NOT NULL COMMENT 'Number of the output in it',
  address BINARY NOT NULL COMMENT 'Address, as bytes',
  lovelace BIGINT NOT NULL COMMENT 'Amount in lovelace',
  assets ARRAY<STRUCT<policy: BINARY, name: BINARY, quantity: DECIMAL(20, 0)>> NOT NULL COMMENT 'Tokens in it',
  datum_hash BINARY COMMENT 'Hash of its datum, where it has only that',
  datum BINARY COMMENT 'Inline datum, CBOR',
  reference_script BINARY COMMENT 'Reference script, CBOR',
  txout BINARY NOT NULL COMMENT 'The output as in the block: what the UTxO root is made of',
  created_height BIGINT COMMENT 'Block that made it; NULL if it was there before the first block'
)
CLUSTER BY (_chain, _height);
