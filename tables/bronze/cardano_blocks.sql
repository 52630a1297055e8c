-- Blocks of Cardano chains: where they are in time, and how many transactions they have.
-- kind: event
-- key: chain, height
-- stages: bronze.cage
-- retention: 30 days
CREATE TABLE bronze.cardano_blocks (
  hash BINARY NOT NULL COMMENT 'Hash of the block',
  era INT NOT NULL COMMENT 'Era: 1 Byron, 2 Shelley, 3 Allegra, 4 Mary, 5 Alonzo, 6 Babbage, 7 Conway',
  slot BIGINT COMMENT 'Slot of the block, counted from the first; in Byron from its epoch of 21,600 slots and the slot in it',
  timestamp TIMESTAMP COMMENT 'Time of the slot, where the chain has the option network_start',
  transaction_count INT NOT NULL COMMENT 'Transactions in it',
  invalid_count INT NOT NULL COMMENT 'Those of them that failed and lost their collateral'
)
CLUSTER BY (_chain, _height);
