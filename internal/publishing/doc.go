// Package publishing has the code that the adapters' Publishers share.
//
// [Publish] runs one call: it gives the adapter a [Call], which collects one answer per message, and returns all
// answers by the call's deadline. A message without an answer is an error. A broker that refuses a whole batch does not
// say which message is at fault: the adapter answers each message of the batch with a [BatchError], and gets those
// messages once more, to be sent each by itself.
//
// A [Pool] holds the client that the calls share. It opens another one in place of a client that is broken, and cuts
// the broken one when the last call on it has returned, so that no message is sent after its call has ended.
//
// A Publisher does not pause when its broker is away. Its error says that, and the relay gives it no messages for a
// while. A program that calls Publish without a relay must wait between its calls itself.
package publishing
