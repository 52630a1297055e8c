-- Commands, rows and keys of a replica lie in no order: statistics on them cost much and skip nothing.
ALTER TABLE store.bronze_commands SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index');
ALTER TABLE store.silver_command_results SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index');
ALTER TABLE store.silver_pending_commands SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index,effective_meta_index');
ALTER TABLE store.silver_pending_commands_base SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index,effective_meta_index');
ALTER TABLE store.silver_data_rows SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,table_id');
ALTER TABLE store.silver_data_rows_base SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,table_id');
