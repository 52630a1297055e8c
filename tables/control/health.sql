-- What stopped, and why. The latest row of a stage and chain is its state; no row means ok.
-- kind: control
-- key: stage, chain, at
-- retention: 30 days
CREATE TABLE control.health (
  stage STRING NOT NULL COMMENT 'Stage',
  chain STRING NOT NULL COMMENT 'Chain',
  status STRING NOT NULL COMMENT 'ok or degraded',
  reason STRING NOT NULL COMMENT 'What was broken, or why an operator resumed it',
  actor STRING NOT NULL COMMENT 'Run or user that wrote it',
  at TIMESTAMP NOT NULL COMMENT 'When'
);
