-- Nodes that streams may be placed on, each from the block on in which it was registered.
-- kind: state
-- key: chain, permanent_index
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.shard_nodes (
  permanent_index INT NOT NULL COMMENT 'Number of the node, for ever; silver.streams refers to it',
  address BINARY NOT NULL COMMENT 'Address, 20 bytes',
  from_height BIGINT NOT NULL COMMENT 'Block from which it is registered, as the registry says',
  CONSTRAINT address_is_20_bytes CHECK (length(address) = 20)
)
CLUSTER BY (_chain);
