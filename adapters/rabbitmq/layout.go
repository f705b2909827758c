package rabbitmq

// HeaderKey carries a message's ordering key, which has no place of its own in RabbitMQ. A Publisher sets it unless the key is
// empty; a Subscriber reads it. It is a string, or bytes if it is no UTF-8.
const HeaderKey = "txonce-key"
