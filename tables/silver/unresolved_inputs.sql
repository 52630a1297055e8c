-- Inputs that spend what is not there: made before the first block of the chain that the lake has, made later, or spent already.
-- kind: event
-- key: chain, height, tx_index, spent_tx_id, spent_tx_index
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.unresolved_inputs (
  tx_index INT NOT NULL COMMENT 'Position of the spending transaction in the block',
  tx_id BINARY NOT NULL COMMENT 'The spending transaction',
  spent_tx_id BINARY NOT NULL COMMENT 'Transaction that made the output',
  spent_tx_index INT NOT NULL COMMENT 'Number of the output in it'
)
CLUSTER BY (_chain, _height);
