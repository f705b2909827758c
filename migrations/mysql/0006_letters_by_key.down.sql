DELETE FROM txonce_schema WHERE version = 6;
SET @txonce_index = IF((SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'dead_letters' AND index_name = 'dead_letters_message') > 0, 'DROP INDEX dead_letters_message ON dead_letters', 'DO 0');
PREPARE txonce_index FROM @txonce_index;
EXECUTE txonce_index;
DEALLOCATE PREPARE txonce_index;
