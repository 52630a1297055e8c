-- What a pass brought of each stream: where the node stood, and which miniblocks came.
-- kind: event
-- key: chain, height, stream_id
-- stages: bronze.sync
-- retention: 30 days
CREATE TABLE bronze.stream_answers (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  first_tx INT NOT NULL COMMENT 'tx_index of its first miniblock in the pass',
  miniblocks INT NOT NULL COMMENT 'How many miniblocks came',
  pages INT NOT NULL COMMENT 'How many of them were fetched ahead of the answer itself, to fill a gap',
  snapshot_index INT NOT NULL COMMENT 'Which miniblock of the answer itself has the snapshot',
  minipool_gen BIGINT COMMENT 'Number of the next miniblock, as the node stated it; NULL if it stated none',
  prev_miniblock_hash BINARY COMMENT 'Hash of its last miniblock, as stated',
  is_whole BOOLEAN NOT NULL COMMENT 'False: there was more to fetch',
  catch_up BOOLEAN NOT NULL COMMENT 'The pass before ended inside a gap of this stream',
  live BOOLEAN NOT NULL COMMENT 'Fetched from a node rather than recorded',
  passed_at TIMESTAMP COMMENT 'When the pass was made; NULL for recordings'
)
CLUSTER BY (_chain, _height);
