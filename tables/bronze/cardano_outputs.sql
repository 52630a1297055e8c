-- Outputs of the transactions of Cardano chains, with the return of collateral at the number after the regular ones.
-- kind: event
-- key: chain, height, tx_index, output_index
-- stages: bronze.cage
-- retention: 30 days
CREATE TABLE bronze.cardano_outputs (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  tx_id BINARY NOT NULL COMMENT 'Id of the transaction',
  output_index INT NOT NULL COMMENT 'Number of the output in it',
  role STRING NOT NULL COMMENT 'output or collateral_return',
  is_created BOOLEAN NOT NULL COMMENT 'It is there afterwards: an output of a valid transaction, the return of an invalid one',
  address BINARY NOT NULL COMMENT 'Address, as bytes',
  lovelace BIGINT NOT NULL COMMENT 'Amount in lovelace',
  assets ARRAY<STRUCT<policy: BINARY, name: BINARY, quantity: DECIMAL(20, 0)>> NOT NULL COMMENT 'Tokens in it',
  datum_hash BINARY COMMENT 'Hash of its datum, where it has only that',
  datum BINARY COMMENT 'Inline datum, CBOR',
  reference_script BINARY COMMENT 'Reference script, CBOR',
  txout BINARY NOT NULL COMMENT 'The output as in the block: what the UTxO root is made of'
)
CLUSTER BY (_chain, _height);
