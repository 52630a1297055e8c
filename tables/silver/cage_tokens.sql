-- Tokens of the cage that are not burnt.
-- kind: state
-- key: chain, token_id
-- stages: silver.cage
-- retention: 30 days
CREATE TABLE silver.cage_tokens (
  token_id BINARY NOT NULL COMMENT 'Asset name under the policy of the cage',
  owner BINARY NOT NULL COMMENT 'Key hash of the owner, 28 bytes',
  root BINARY NOT NULL COMMENT 'Root of its trie, 32 bytes; zeros if the trie is empty',
  max_fee BIGINT COMMENT 'Largest fee; NULL if the number does not fit',
  process_time BIGINT COMMENT 'Time to process requests, in milliseconds; NULL if the number does not fit',
  retract_time BIGINT COMMENT 'Time to retract requests, in milliseconds; NULL if the number does not fit',
  created_height BIGINT COMMENT 'Block of its boot here; NULL if that was before the first block',
  updated_height BIGINT NOT NULL COMMENT 'Block of its last event',
  tracked BOOLEAN NOT NULL COMMENT 'The lake has its trie: false if it was filled before the first block, or in another cage'
)
CLUSTER BY (_chain, _height);
