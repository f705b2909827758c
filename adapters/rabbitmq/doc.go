// Package rabbitmq receives from RabbitMQ and sends to it, on rabbitmq/amqp091-go.
package rabbitmq
