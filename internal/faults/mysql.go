package faults

// mysqlCodes are the numbers of MySQL's and MariaDB's errors. All others are the statement's own fault.
var mysqlCodes = map[Class][]uint16{
	contention: {1205, 1213, 3058, 3572, 1020, 3101}, // lock wait timeout, deadlocks of rows and of GET_LOCK, NOWAIT, outdated snapshot, certification
	connection: {1053, 1077, 1079, 1158, 1159, 1160, 1161, 1184, 1927},
	server:     {1290, 1792, 1836, 1047, 1665}, // read-only, as after a failover; not part of its cluster; binlog_format
	access:     {1045, 1130, 1698, 1820, 1862},
	permission: {1044, 1049, 1142, 1143, 1227, 1370},
	deployment: {1046, 1054, 1064, 1109, 1146, 1305, 1449},
	timeLimit:  {1317, 1969, 3024}, // interrupted by an operator, max_statement_time, max_execution_time
	idleLimit:  {4031},             // from MySQL; MariaDB closes the connection without an error
	resources:  {1021, 1037, 1038, 1040, 1041, 1114, 1129, 1135, 1203, 1206, 1226, 1637},
	storage:    {1015, 1016, 1017, 1030, 1034, 1105, 1180, 1181, 1194, 1195, 1712, 1815, 1877}, // and unknown errors, also of COMMIT
	session:    {1412, 1615},                                                                   // a table or a prepared statement has changed
}

var mysqlClasses = func() map[uint16]Class {
	of := map[uint16]Class{}
	for c, numbers := range mysqlCodes {
		for _, n := range numbers {
			of[n] = c
		}
	}
	return of
}()

// OfMySQL returns the class of an error's number; 0: there is none.
func OfMySQL(number uint16) Class {
	if number == 0 {
		return unknown
	}
	if c, ok := mysqlClasses[number]; ok {
		return c
	}
	if number >= 9000 && number < 10000 { // ProxySQL's own: no server could be reached in time
		return resources
	}
	return data
}
