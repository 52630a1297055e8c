-- Outputs that transactions of Cardano chains name: to spend them, as collateral, or to look at.
-- kind: event
-- key: chain, height, tx_index, role, position
-- stages: bronze.cage
-- retention: 30 days
CREATE TABLE bronze.cardano_inputs (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  tx_id BINARY NOT NULL COMMENT 'Id of the transaction',
  role STRING NOT NULL COMMENT 'input, collateral or reference',
  position INT NOT NULL COMMENT 'Place in the order of ids and indexes, which redeemers count in',
  written_position INT NOT NULL COMMENT 'Place as written in the transaction',
  spent_tx_id BINARY NOT NULL COMMENT 'Transaction that made the output',
  spent_tx_index INT NOT NULL COMMENT 'Number of the output in it',
  is_spent BOOLEAN NOT NULL COMMENT 'The output is gone afterwards: an input of a valid transaction, collateral of an invalid one'
)
CLUSTER BY (_chain, _height);
