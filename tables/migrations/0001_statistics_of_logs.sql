-- Hashes, addresses and data of logs lie in no order: statistics on them cost much and skip nothing.
ALTER TABLE store.bronze_evm_logs SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,log_id,block_number,block_timestamp');
