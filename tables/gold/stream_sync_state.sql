-- How far each stream was delivered. It moves in one commit with the notifications, and only when something changed.
-- kind: state
-- key: chain, stream_id
-- stages: gold.sync
-- retention: 30 days
CREATE TABLE gold.stream_sync_state (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  snapshot_miniblock BIGINT NOT NULL COMMENT 'Number of the last miniblock with a snapshot',
  minipool_gen BIGINT NOT NULL COMMENT 'Number of the next miniblock: the last one delivered, plus 1',
  prev_miniblock_hash BINARY COMMENT 'Hash of the last miniblock delivered; NULL if there is none yet',
  first_miniblock BIGINT NOT NULL COMMENT 'First miniblock of the unbroken line that was delivered up to here',
  genesis_hash BINARY COMMENT 'Hash of miniblock 0, where it was to be had',
  reset_reason STRING COMMENT 'Why the stream last left its line: behind, rewound, recreated or duplicate; NULL if it never did',
  stopped STRING COMMENT 'What is wrong with the next miniblock; NULL if the stream goes on',
  updated_at TIMESTAMP COMMENT 'Time of the pass, or for recordings of the last miniblock'
);
