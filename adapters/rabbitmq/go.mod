module github.com/txonce/txonce/adapters/rabbitmq

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/txonce/txonce v0.1.0
	github.com/txonce/txonce/internal/test/brokers v0.1.0
)

require go.uber.org/goleak v1.3.0 // indirect
