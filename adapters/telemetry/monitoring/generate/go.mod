module github.com/txonce/txonce/adapters/telemetry/monitoring/generate

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/jackc/pgx/v5 v5.12.0
	github.com/prometheus/client_golang v1.24.1
	github.com/txonce/txonce v0.1.0
	github.com/txonce/txonce/adapters/pgxstore v0.1.0
	github.com/txonce/txonce/adapters/telemetry v0.1.0
	go.opentelemetry.io/otel/exporters/prometheus v0.69.0
	go.opentelemetry.io/otel/sdk/metric v1.47.0
)

require (
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/otlptranslator v1.0.0 // indirect
	github.com/prometheus/procfs v0.22.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.opentelemetry.io/otel/sdk v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

// This module is not published.
replace (
	github.com/txonce/txonce => ../../../..
	github.com/txonce/txonce/adapters/awssqs => ../../../awssqs
	github.com/txonce/txonce/adapters/cli => ../../../cli
	github.com/txonce/txonce/adapters/kafka => ../../../kafka
	github.com/txonce/txonce/adapters/pgxstore => ../../../pgxstore
	github.com/txonce/txonce/adapters/rabbitmq => ../../../rabbitmq
	github.com/txonce/txonce/adapters/sqlstore/gormstore => ../../../sqlstore/gormstore
	github.com/txonce/txonce/adapters/telemetry => ../..
	github.com/txonce/txonce/adapters/watermilltx => ../../../watermilltx
	github.com/txonce/txonce/cmd/txonce => ../../../../cmd/txonce
	github.com/txonce/txonce/internal/test/brokers => ../../../../internal/test/brokers
)
