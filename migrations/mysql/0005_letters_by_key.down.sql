DELETE FROM txonce_schema WHERE version = 5;
SET @txonce_index = IF((SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'dead_letters' AND index_name = 'dead_letters_message') > 0, 'ALTER TABLE dead_letters DROP KEY dead_letters_message, DROP KEY dead_letters_consumer, ADD KEY dead_letters_consumer (consumer, first_parked, id)', 'DO 0');
PREPARE txonce_index FROM @txonce_index;
EXECUTE txonce_index;
DEALLOCATE PREPARE txonce_index;
