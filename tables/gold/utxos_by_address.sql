-- Unspent outputs of Cardano chains, by address.
-- kind: state
-- key: chain, address, tx_id, tx_index
-- stages: gold.cage
-- retention: 30 days
CREATE TABLE gold.utxos_by_address (
  address BINARY NOT NULL COMMENT 'Address, as bytes',
  tx_id BINARY NOT NULL COMMENT 'Transaction that made the output',
  tx_index INT NOT NULL COMMENT 'Number of the output in it',
  lovelace BIGINT NOT NULL COMMENT 'Amount in lovelace',
  assets ARRAY<STRUCT<policy: BINARY, name: BINARY, quantity: DECIMAL(20, 0)>> NOT NULL COMMENT 'Tokens in it',
  datum_hash BINARY COMMENT 'Hash of its datum, where it has only that',
  datum BINARY COMMENT 'Inline datum, CBOR',
  created_height BIGINT COMMENT 'Block that made it; NULL if it was there before the first block'
)
CLUSTER BY (_chain, _height);
