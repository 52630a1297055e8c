-- Events of the transactions of metadata shards: one for each miniblock of a batch, mbok or mberr.
-- kind: event
-- key: chain, height, tx_index, event_index
-- stages: silver.shards
-- retention: 30 days
CREATE TABLE silver.shard_events (
  tx_index INT NOT NULL COMMENT 'Position of the transaction in the block',
  event_index INT NOT NULL COMMENT 'Position of the event in the result, which is that of the miniblock in the batch',
  type STRING NOT NULL COMMENT 'mbok: the miniblock was taken; mberr: it was not',
  attributes ARRAY<STRUCT<key: STRING, value: STRING>> NOT NULL COMMENT 'Attributes in order: sid, n, h and sealed, or sid, code, name and msg'
)
CLUSTER BY (_chain, _height);
