package faults

// mysqlCodes are the numbers of MySQL's and MariaDB's errors. All others are the statement's own fault.
var mysqlCodes = map[Class][]uint16{
	// lock wait timeout, deadlocks of rows, of GET_LOCK and of XA, a wait that DDL ended, NOWAIT, outdated snapshot,
	// certification, and MariaDB's commit behind another that failed
	contention: {1205, 1213, 1613, 1614, 1689, 3058, 3572, 1020, 3101, 1964},
	connection: {1042, 1043, 1053, 1077, 1079, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169},
	// read-only, as after a failover; not part of its cluster, or not ready yet: Galera, Group Replication (3100: its
	// hook refused COMMIT, which is rolled back); offline; binlog_format
	server: {
		1036, 1290, 1792, 1836, 1874, 1047, 1665, 3032, 3100, 3168, 3781, 3782, 3783, 3796, 3797, 3798,
		3799, 3989,
	},
	access:     {1045, 1130, 1698, 1820, 1862, 3118, 3159, 3955, 4151},
	permission: {1044, 1049, 1142, 1143, 1227, 1370},
	// 3098: Group Replication wants a primary key
	deployment: {1046, 1054, 1064, 1109, 1146, 1305, 1449, 3098},
	// interrupted by an operator, max_statement_time, max_execution_time
	timeLimit: {1317, 1969, 3024},
	// from MySQL; MariaDB closes the connection without an error
	idleLimit: {4031},
	// 1297: NDB's temporary errors
	resources: {1021, 1037, 1038, 1040, 1041, 1114, 1129, 1135, 1203, 1206, 1226, 1297, 1461, 1637},
	// and unknown errors, also of COMMIT
	storage: {
		1015, 1016, 1017, 1023, 1024, 1026, 1028, 1030, 1034, 1105, 1180, 1181, 1194, 1195, 1296, 1598, 1712,
		1812, 1814, 1815, 1877, 1932,
	},
	// a table has changed, or a prepared statement has or is missing: a pooler switched the session
	session: {1243, 1412, 1615},
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
	if number < 1000 { // of the server's operating system: a full disk, an I/O error of the binary log
		return storage
	}
	if number >= 9000 && number < 10000 { // ProxySQL's own: no server could be reached in time
		return resources
	}
	return data
}
