-- What Meta holds: namespaces, tables, users, storages, jobs and their nodes.
-- kind: state
-- key: chain, kind, id
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.meta_objects (
  kind STRING NOT NULL COMMENT 'namespace, table, user, storage, job or job_node',
  id STRING NOT NULL COMMENT 'Its name; of a table namespace.table, of a job node job/node',
  definition STRING NOT NULL COMMENT 'What it is, as JSON: columns and primary_key of a table, role and locked of a user, status of a job',
  created_index BIGINT NOT NULL COMMENT 'Meta index of the command that created it',
  updated_index BIGINT NOT NULL COMMENT 'Meta index of the command that changed it last'
);
