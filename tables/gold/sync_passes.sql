-- What each pass did: how many streams of which case, and which notifications.
-- kind: event
-- key: chain, height
-- stages: gold.sync
-- retention: 30 days
CREATE TABLE gold.sync_passes (
  first_offset BIGINT NOT NULL COMMENT 'Offset of the first notification of the pass, or of the next one if it has none',
  notifications BIGINT NOT NULL COMMENT 'Notifications in it',
  miniblocks BIGINT NOT NULL COMMENT 'Miniblocks delivered',
  historical BIGINT NOT NULL COMMENT 'Miniblocks of them that come from a gap or a catch-up',
  streams BIGINT NOT NULL COMMENT 'Streams that it brought something of',
  state_writes BIGINT NOT NULL COMMENT 'Rows written to gold.stream_sync_state',
  cases MAP<STRING, BIGINT> NOT NULL COMMENT 'Streams by case: first, follows, behind, rewound, recreated, duplicate',
  passed_at TIMESTAMP COMMENT 'When it was made; NULL for recordings'
)
CLUSTER BY (_chain, _height);
