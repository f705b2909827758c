package rabbitmq

// HeaderKey is the header with a message's ordering key, for which AMQP has no property. A Publisher sets it unless the key is empty; a
// Subscriber reads it. It is a string, or bytes if the key is not UTF-8.
const HeaderKey = "txonce-key"
