-- What transactions of Cardano chains tell scripts.
-- kind: event
-- key: chain, height, tx_index, tag, position
-- stages: bronze.cage
-- retention: 30 days
CREATE TABLE bronze.cardano_redeemers (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  tx_id BINARY NOT NULL COMMENT 'Id of the transaction',
  is_valid BOOLEAN NOT NULL COMMENT 'The transaction took effect',
  tag INT NOT NULL COMMENT 'For what: 0 spend, 1 mint, 2 certificate, 3 reward, 4 vote, 5 proposal',
  position BIGINT NOT NULL COMMENT 'For which: place among the sorted inputs (spend) or policies (mint)',
  data BINARY NOT NULL COMMENT 'What it is told: Plutus Data, CBOR'
)
CLUSTER BY (_chain, _height);
