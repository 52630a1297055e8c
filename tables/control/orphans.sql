-- Rows that nobody can see, as last measured by garbage collection. Writers slow down, then stop, when there are too many.
-- kind: control
-- key: table_name, kind, at
-- retention: 30 days
CREATE TABLE control.orphans (
  table_name STRING NOT NULL COMMENT 'Physical table',
  kind STRING NOT NULL COMMENT 'orphan (attempt never committed), rolled_back, or old_base',
  rows BIGINT NOT NULL COMMENT 'Rows past retention or not',
  bytes BIGINT NOT NULL COMMENT 'Estimated bytes',
  removable BIGINT NOT NULL COMMENT 'Of these rows, past retention',
  at TIMESTAMP NOT NULL COMMENT 'When measured'
);
