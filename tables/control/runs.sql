-- What each batch took. Metrics only: nothing depends on it, and a killed run may miss its last rows.
-- kind: control
-- key: run_id, commit_id
-- retention: 30 days
CREATE TABLE control.runs (
  run_id STRING NOT NULL COMMENT 'One run of one stage',
  stage STRING NOT NULL COMMENT 'Stage',
  lane STRING NOT NULL COMMENT 'Lane',
  chains INT NOT NULL COMMENT 'Chains in the batch',
  commit_id BIGINT COMMENT 'Commit, if the batch got that far',
  seq BIGINT COMMENT 'Ledger seq',
  epoch BIGINT COMMENT 'Lease epoch',
  kind STRING NOT NULL COMMENT 'advance, rollback, compact, or failed',
  blocks BIGINT NOT NULL COMMENT 'Blocks in the batch, all chains together',
  rows BIGINT NOT NULL COMMENT 'Rows written, all tables together',
  bytes BIGINT NOT NULL COMMENT 'Bytes written',
  retries INT NOT NULL COMMENT 'Appends that had to be repeated',
  seconds MAP<STRING, DOUBLE> COMMENT 'Seconds per phase',
  error STRING COMMENT 'Why the batch failed',
  started_at TIMESTAMP NOT NULL COMMENT 'Start of the batch'
);
