-- What happened to the cage: tokens booted, updated and burnt, requests made, processed, rejected and retracted.
-- kind: event
-- key: chain, height, tx_index, event_index
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.cage_events (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  event_index INT NOT NULL COMMENT 'Position of the event in the transaction',
  tx_id BINARY COMMENT 'Id of the transaction',
  kind STRING NOT NULL COMMENT 'boot, request, update, retract, reject or burn',
  token_id BINARY NOT NULL COMMENT 'Asset name of the token; of a request also one that does not exist',
  request_tx_id BINARY COMMENT 'Of request and retract: the request, by the transaction that made it',
  request_tx_index INT COMMENT 'Number of the output that is the request',
  requests ARRAY<STRUCT<tx_id: BINARY, tx_index: INT>> NOT NULL COMMENT 'All requests concerned, in the order of operations',
  root BINARY COMMENT 'Of boot, update and reject: root of the trie afterwards',
  owner BINARY COMMENT 'Of boot, update and reject: owner of the token afterwards'
)
CLUSTER BY (_chain, _height);
