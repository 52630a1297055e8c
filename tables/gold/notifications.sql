-- Every event after the first sync of its stream, once, numbered in order of delivery. Consumers read on from their offset.
-- kind: event
-- key: chain, offset
-- stages: gold.sync
-- retention: 30 days
CREATE TABLE gold.notifications (
  offset BIGINT NOT NULL COMMENT 'Number of the notification in the chain, from 1, without gaps',
  stream_id BINARY NOT NULL COMMENT 'Stream',
  miniblock_num BIGINT COMMENT 'Number of the miniblock; for events of the minipool, of the one to come',
  event_index INT NOT NULL COMMENT 'Place in the miniblock or minipool, from 0',
  event_hash BINARY NOT NULL COMMENT 'Hash of the event',
  payload BINARY NOT NULL COMMENT 'The serialized StreamEvent, as sent',
  historical BOOLEAN NOT NULL COMMENT 'It comes from a gap or a catch-up, not from what is going on now',
  duplicate BOOLEAN NOT NULL COMMENT 'It may have been delivered before: the history to tell is gone',
  minipool BOOLEAN NOT NULL COMMENT 'It was delivered before it was in a miniblock'
)
CLUSTER BY (_chain, _height);
