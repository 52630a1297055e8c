-- Miniblocks and events that are unsound, with the reason. The bytes are in raw.transactions.
-- kind: event
-- key: chain, height, stream_id, tx_index, event_index
-- stages: gold.sync
-- retention: 30 days
CREATE TABLE gold.sync_quarantine (
  stream_id BINARY NOT NULL COMMENT 'Stream; it waits for a sound miniblock of this number, unless it was delivered before',
  tx_index INT NOT NULL COMMENT 'Place of the miniblock in raw.transactions; -1 for an event of a minipool',
  event_index INT NOT NULL COMMENT 'Place of the event in the minipool; -1 for a miniblock',
  miniblock_num BIGINT COMMENT 'Number of the miniblock, as far as it can be read',
  hash BINARY COMMENT 'Hash that it states',
  reason STRING NOT NULL COMMENT 'What is wrong with it'
)
CLUSTER BY (_chain, _height);
