-- Requests that wait at the cage.
-- kind: state
-- key: chain, tx_id, tx_index
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.cage_requests (
  tx_id BINARY NOT NULL COMMENT 'Transaction that made the request',
  tx_index INT NOT NULL COMMENT 'Number of the output that is the request',
  token_id BINARY NOT NULL COMMENT 'Token whose trie it wants to change',
  owner BINARY NOT NULL COMMENT 'Key hash of who asks',
  key BINARY NOT NULL COMMENT 'Key in the trie',
  operation STRING NOT NULL COMMENT 'insert, delete or update',
  old_value BINARY COMMENT 'Value that the key has to have; NULL for insert',
  new_value BINARY COMMENT 'Value that the key gets; NULL for delete',
  fee BIGINT COMMENT 'Fee offered; NULL if the number does not fit',
  submitted_at BIGINT COMMENT 'When it was made, in milliseconds since 1970; NULL if the number does not fit',
  created_height BIGINT COMMENT 'Block that made it; NULL if it was there before the first block'
)
CLUSTER BY (_chain, _height);
