-- How to undo a block in a key-value copy of the cage: carry out the operations of the block in order, newest block first.
-- kind: event
-- key: chain, height, op_index
-- stages: gold.cage
-- retention: 30 days
CREATE TABLE gold.cage_inverse_ops (
  op_index INT NOT NULL COMMENT 'Position among the operations of the block',
  op STRING NOT NULL COMMENT 'insert_token, set_root (the whole state of the token), delete_token, trie_insert, trie_delete, insert_request or delete_request',
  token_id BINARY COMMENT 'Token; of a request the one that it names',
  tx_id BINARY COMMENT 'Of requests: the transaction that made it',
  tx_index INT COMMENT 'Of requests: number of the output',
  key BINARY COMMENT 'Of the trie and of requests to be inserted: key',
  value BINARY COMMENT 'Of trie_insert: the value to put back; of trie_delete: the value that goes',
  token STRUCT<owner: BINARY, root: BINARY, max_fee: BIGINT, process_time: BIGINT, retract_time: BIGINT, created_height: BIGINT, updated_height: BIGINT, tracked: BOOLEAN> COMMENT 'Of insert_token and set_root: the state to put back',
  request STRUCT<owner: BINARY, operation: STRING, old_value: BINARY, new_value: BINARY, fee: BIGINT, submitted_at: BIGINT, created_height: BIGINT> COMMENT 'Of insert_request: what to put back'
)
CLUSTER BY (_chain, _height);
