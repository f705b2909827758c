package snshook

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/txonce/txonce/internal/risks"
)

// Config configures a Verifier.
type Config struct {
	// TopicArns are the topics whose messages are accepted, such as "arn:aws:sns:eu-west-1:123456789012:orders".
	// Anybody can make a topic of their own send messages with a valid signature to this endpoint. Required.
	TopicArns []string

	// Subscription gets the body of each verified SubscriptionConfirmation for a topic of TopicArns, before it is
	// dropped. Store the body where an operator finds it and can pass it to Confirm. The same confirmation may come
	// several times. Subscription must be safe for concurrent use, and must not wait.
	//
	// Defaults to nothing.
	Subscription func(body []byte)

	// Transport fetches certificates and, in Confirm, the SubscribeURL. Set it where requests need a proxy of your own.
	// In tests it may be a *Signer.
	//
	// Defaults to http.DefaultTransport.
	Transport http.RoundTripper

	// Horizon is how long after its publication SNS may deliver a message. Attempts end an hour after the first one at
	// the latest, but a subscription that limits its rate (maxReceivesPerSecond) can delay the first attempt. The
	// Processor's window must be at least as long.
	//
	// Defaults to 24 hours. The minimum is 1 hour.
	Horizon time.Duration

	// GiveUpAfter is an age of messages. When a message is older, each attempt may be the last, so it is parked after
	// one failure of the handler. Set it to a little less than the sum of the delays in the subscription's delivery
	// policy. A value that is too long loses messages that fail in each attempt, unless the subscription has a
	// dead-letter queue. A value that is too short parks them early.
	//
	// Defaults to 30 seconds: SNS repeats an attempt 3 times, 20 seconds apart, unless the policy says otherwise. So
	// a failure of the third attempt, after 40 seconds, parks the message.
	GiveUpAfter time.Duration

	// Deadline is how long SNS waits for a response.
	//
	// Defaults to 15 seconds.
	Deadline time.Duration

	// AcceptedRisks may contain RiskSHA1.
	//
	// Defaults to none.
	AcceptedRisks []Risk
}

// Risk names a setting that is refused because it is unsafe, unless AcceptedRisks contains it.
type Risk = risks.Risk

// RiskSHA1 accepts messages with SignatureVersion 1 too, which are signed with SHA-1. A publisher who can make two
// texts with the same SHA-1 hash, and publishes one of them, can forge the other. Set the topic's attribute
// SignatureVersion to 2 instead.
const RiskSHA1 Risk = "RiskSHA1"

var topicArn = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?$`)

// maxTopicArn leaves room for the source's name in a tenant of 255 bytes.
const maxTopicArn = 240

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("snshook: Config."+format, args...))
	}
	if len(c.TopicArns) == 0 {
		refuse("TopicArns is required: list the topics whose messages you expect, because messages of anybody's topic have a valid signature")
	}
	for i, arn := range c.TopicArns {
		if !topicArn.MatchString(arn) || len(arn) > maxTopicArn {
			refuse("TopicArns[%d] is %q: want the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:orders", i, arn)
		}
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Horizon", c.Horizon}, {"GiveUpAfter", c.GiveUpAfter}, {"Deadline", c.Deadline}} {
		if field.value < 0 {
			refuse("%s is %v: want more than 0, or 0 for the default", field.name, field.value)
		}
	}
	if c.Horizon != 0 && c.Horizon < time.Hour {
		refuse("Horizon is %v: want an hour or more, because SNS may repeat a delivery for an hour", c.Horizon)
	}
	if err := risks.Check(c.AcceptedRisks, RiskSHA1); err != nil {
		refuse("%w", err)
	}
	c.TopicArns = slices.Clone(c.TopicArns)
	if c.Subscription == nil {
		c.Subscription = func([]byte) {}
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	c.Horizon = cmp.Or(c.Horizon, 24*time.Hour)
	c.GiveUpAfter = cmp.Or(c.GiveUpAfter, 30*time.Second)
	c.Deadline = cmp.Or(c.Deadline, 15*time.Second)
	return c, errors.Join(wrong...)
}
