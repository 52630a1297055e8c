-- Which streams a node holds, for every node and stream.
-- kind: state
-- key: chain, permanent_index, stream_id
-- stages: gold.shards
-- retention: 30 days
CREATE TABLE gold.streams_by_node (
  permanent_index INT NOT NULL COMMENT 'Node',
  stream_id BINARY NOT NULL COMMENT 'Stream',
  address BINARY NOT NULL COMMENT 'Address of the node',
  position INT NOT NULL COMMENT 'Place of the node in the list of the stream, from 0',
  node_count INT NOT NULL COMMENT 'Nodes in that list',
  replication_factor INT NOT NULL COMMENT 'Copies wanted of the stream',
  placed_height BIGINT NOT NULL COMMENT 'Block since which this holds'
)
CLUSTER BY (_chain, permanent_index);
