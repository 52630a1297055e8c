-- Every change of a Meta object by Meta index. With it Meta can be read as of any index, as data commands need it.
-- kind: event
-- key: chain, meta_index, kind, id
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.meta_changes (
  meta_index BIGINT NOT NULL COMMENT 'Meta index of the command; for what a log starts with, a Snapshot, that of its creation',
  kind STRING NOT NULL COMMENT 'namespace, table, user, storage, job or job_node',
  id STRING NOT NULL COMMENT 'Name of the object',
  created_index BIGINT NOT NULL COMMENT 'Meta index at which this life of the object began',
  definition STRING COMMENT 'What the object is from here on, as JSON; NULL if it is gone'
)
CLUSTER BY (_chain, _height);
