-- What the tries of the cage hold: keys and values, by token.
-- kind: state
-- key: chain, token_id, key
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.trie_facts (
  token_id BINARY NOT NULL COMMENT 'Token that the trie belongs to',
  key BINARY NOT NULL COMMENT 'Key',
  value BINARY NOT NULL COMMENT 'Value'
)
CLUSTER BY (_chain, _height);
