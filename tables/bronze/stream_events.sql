-- Events of sound miniblocks and of minipools, as they came. What came twice is here twice.
-- kind: event
-- key: chain, height, stream_id, minipool, tx_index, event_index
-- stages: bronze.sync
-- retention: 30 days
CREATE TABLE bronze.stream_events (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  tx_index INT NOT NULL COMMENT 'Miniblock that holds it, as in raw.transactions; -1 for the minipool',
  minipool BOOLEAN NOT NULL COMMENT 'It was in no miniblock yet',
  miniblock_num BIGINT COMMENT 'Number of the miniblock; for the minipool, of the one to come',
  event_index INT NOT NULL COMMENT 'Place in the miniblock or minipool, from 0',
  event_hash BINARY NOT NULL COMMENT 'Hash of the event',
  creator_address BINARY NOT NULL COMMENT 'Who made it',
  created_at TIMESTAMP COMMENT 'When, by its maker',
  kind STRING COMMENT 'What it is about: channel, space, user, member, …',
  payload BINARY NOT NULL COMMENT 'The serialized StreamEvent, as sent',
  problem STRING COMMENT 'What is wrong with an event of a minipool; NULL if nothing is'
)
CLUSTER BY (_chain, _height);
