package rabbitmq

// HeaderKey is the header with a message's ordering key, because AMQP has no property for that. A Publisher sets it unless the key is
// empty; a Subscriber reads it. It is a string, or bytes if the key is not UTF-8.
const HeaderKey = "txonce-key"
