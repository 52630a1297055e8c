-- What maintenance did to the physical tables: OPTIMIZE, garbage collection, restore, migrations. A restore that has a
-- started row and no finished row was interrupted: run it again.
-- kind: control
-- key: id, at
-- retention: 30 days
CREATE TABLE control.maintenance (
  id STRING NOT NULL COMMENT 'One maintenance action',
  action STRING NOT NULL COMMENT 'optimize, gc, restore or migrate',
  state STRING NOT NULL COMMENT 'started, finished, or lost (rows that a restore could not bring back)',
  stage STRING COMMENT 'Stage, where one is concerned',
  details STRING NOT NULL COMMENT 'JSON: what was planned or done',
  actor STRING NOT NULL COMMENT 'Who ran it',
  at TIMESTAMP NOT NULL COMMENT 'When this row was written'
);
