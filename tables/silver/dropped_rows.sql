-- Rows of tables that were dropped. Commands that were stamped before the drop and arrive after it still find them.
-- kind: state
-- key: chain, group_name, table_id, table_index, row_key
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.dropped_rows (
  group_name STRING NOT NULL COMMENT 'Shard that holds the row',
  table_id STRING NOT NULL COMMENT 'Table, namespace.table',
  table_index BIGINT NOT NULL COMMENT 'Meta index at which the dropped table was created: tells it from others of the same name',
  row_key STRING NOT NULL COMMENT 'User and primary key as a JSON array; user is null for shared rows',
  user_id STRING COMMENT 'User that the row belongs to; NULL for shared rows',
  primary_key STRING COMMENT 'Value of the primary key: texts as they are, other values as JSON',
  row STRING COMMENT 'The row as canonical JSON; NULL once it is gone',
  log_index BIGINT COMMENT 'Late entry that wrote or deleted it; NULL if it was there when the table was dropped'
);
