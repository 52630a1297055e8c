-- Datums that transactions of Cardano chains show: what an output that has only the hash of its datum means.
-- kind: event
-- key: chain, height, tx_index, datum_hash
-- stages: bronze.cage
-- retention: 30 days
CREATE TABLE bronze.cardano_datums (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  tx_id BINARY NOT NULL COMMENT 'Id of the transaction',
  datum_hash BINARY NOT NULL COMMENT 'Hash of the datum: BLAKE2b-256 of its bytes',
  datum BINARY NOT NULL COMMENT 'The datum: Plutus Data, CBOR'
)
CLUSTER BY (_chain, _height);
