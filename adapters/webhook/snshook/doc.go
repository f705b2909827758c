// Package snshook receives the messages of Amazon SNS topics that have an HTTP(S) endpoint as a subscription.
//
// # Use
//
//	sns, err := snshook.New(snshook.Config{TopicArns: []string{"arn:aws:sns:eu-west-1:123456789012:orders"}})
//	…
//	receiver, err := webhook.New(webhook.Config{Verifier: sns, Processor: orders, …})
//
// The endpoint gets a SubscriptionConfirmation first. It is verified, passed to Config.Subscription and dropped. An
// operator decides whether to call [Verifier.Confirm] with it. A Verifier requests no other URLs of a message than the
// SubscribeURL, in Confirm, and the URL of the certificate.
//
// Set the topic's attribute SignatureVersion to 2. Messages with version 1 (SHA-1) are refused, unless RiskSHA1 is
// accepted. Raw message delivery must be off for the subscription, because raw messages have no signature.
//
// SNS does not repeat a delivery that was answered with 4xx. Deliveries of up to 2 MiB are therefore accepted
// (webhook.Config.MaxBody): a message has at most 256 KiB, and its text becomes longer in JSON. It gives a message up
// after the retries of the subscription's delivery policy, by default three in about a minute. Attach a dead-letter
// queue to the subscription, or set a longer policy (at most an hour) together with Config.GiveUpAfter.
//
// # How it works
//
// The signature covers Message, MessageId, Subject, Timestamp, TopicArn and Type (for a confirmation also SubscribeURL
// and Token). A consumer.Message holds only these:
//
//   - ID is the MessageId. SNS sends the same one with each attempt.
//   - Tenant is "sns/" and the topic's ARN, and Topic is the ARN.
//   - Payload is the text of Message. The headers "sns-subject" and "sns-timestamp" are Subject, if there is one, and
//     Timestamp.
//   - Time is the Timestamp: when the message was published. So a copy that was captured and comes after its key was
//     forgotten is unprovable, and is parked. There is no limit of age here, because SNS signs once and may deliver
//     late.
//   - Fingerprint is of Subject and Message.
//
// Message attributes, the UnsubscribeURL and all HTTP headers are not signed and not passed on.
//
// Anybody's topic has a valid signature of SNS, so a message is refused unless its TopicArn is configured. That is
// checked before anything is fetched. The certificate's URL must be a file in the root directory of an SNS host. TLS
// proves that the certificate comes from that host, so its chain of issuers is not checked. Certificates are fetched
// without redirects, once for all requests that need one, at most 64 KiB in 5 seconds, at most 8 at once, and 12 a
// minute while fetches fail. Up to 16 are kept. A fetch that failed is not repeated for 10 seconds. An attacker with
// the topic's ARN can use up these fetches with forged messages. Messages whose certificate is known are not affected,
// and the others are answered with 503, so that SNS repeats them.
//
// # What a crash does
//
// A Verifier has no state but the certificates, which a new process fetches again. A crash before the transaction's
// COMMIT leaves the message without a 2xx, so SNS delivers it again with the same MessageId.
package snshook
