module github.com/txonce/txonce/adapters/sqlstore/test

go 1.26.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/google/go-cmp v0.7.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/txonce/txonce v0.1.0
	github.com/txonce/txonce/adapters/sqlstore/gormstore v0.1.0
	github.com/uptrace/bun v1.3.0
	github.com/uptrace/bun/dialect/mysqldialect v1.3.0
	github.com/uptrace/bun/dialect/pgdialect v1.3.0
	github.com/uptrace/bun/dialect/sqlitedialect v1.3.0
	golang.org/x/sync v0.24.0
	gorm.io/driver/mysql v1.6.0
	gorm.io/driver/postgres v1.6.3
	gorm.io/driver/sqlite v1.6.0
	gorm.io/gorm v1.31.2
	modernc.org/sqlite v1.60.1
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/jinzhu/inflection v1.0.0 // indirect
	github.com/jinzhu/now v1.1.5 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/mattn/go-sqlite3 v1.14.22 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/puzpuzpuz/xsync/v3 v3.5.1 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/tmthrgd/go-hex v0.0.0-20190904060850-447a3041c3bc // indirect
	github.com/vmihailenco/msgpack/v5 v5.4.1 // indirect
	github.com/vmihailenco/tagparser/v2 v2.0.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	modernc.org/libc v1.78.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

// This module is not published.
replace (
	github.com/txonce/txonce => ../../..
	github.com/txonce/txonce/adapters/awssqs => ../../awssqs
	github.com/txonce/txonce/adapters/cli => ../../cli
	github.com/txonce/txonce/adapters/kafka => ../../kafka
	github.com/txonce/txonce/adapters/pgxstore => ../../pgxstore
	github.com/txonce/txonce/adapters/rabbitmq => ../../rabbitmq
	github.com/txonce/txonce/adapters/sqlstore/gormstore => ../gormstore
	github.com/txonce/txonce/adapters/telemetry => ../../telemetry
	github.com/txonce/txonce/adapters/watermilltx => ../../watermilltx
	github.com/txonce/txonce/cmd/txonce => ../../../cmd/txonce
	github.com/txonce/txonce/internal/test/brokers => ../../../internal/test/brokers
)
