package snshook

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"time"
)

// subscribeURL is matched by the whole SubscribeURL as it is.
var subscribeURL = regexp.MustCompile(`^https://sns\.[a-zA-Z0-9-]{3,63}\.amazonaws\.com(\.cn)?/\?[!-"$-~]+$`)

// Confirm accepts a subscription: it requests the SubscribeURL of a SubscriptionConfirmation, whose body
// Config.Subscription got. body is verified again, as Verify does, and the URL must be one that confirms this
// subscription at an SNS host. Confirming twice does no harm. A confirmation is valid for three days.
//
// Call Confirm after a person has decided to: a program that confirms everything lets others subscribe this endpoint.
func (v *Verifier) Confirm(ctx context.Context, body []byte) error {
	m, err := v.verified(ctx, body, time.Now())
	if err != nil {
		return fmt.Errorf("snshook: Confirm: %w", err)
	}
	if m.kind != subscriptionConfirmation {
		return fmt.Errorf("snshook: Confirm: the message is of type %s: want SubscriptionConfirmation", m.kind)
	}
	if err := checkSubscribeURL(m.fields); err != nil {
		return fmt.Errorf("snshook: Confirm: SubscribeURL: %w", err)
	}
	if _, err := get(ctx, v.certificates.client, m.fields["SubscribeURL"]); err != nil {
		return fmt.Errorf("snshook: Confirm: %w", withoutURL(err))
	}
	return nil
}

func checkSubscribeURL(fields map[string]string) error {
	if !subscribeURL.MatchString(fields["SubscribeURL"]) {
		return errors.New("it is not of an SNS host")
	}
	u, err := url.Parse(fields["SubscribeURL"])
	if err != nil {
		return errors.New("it cannot be parsed")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("its query cannot be parsed")
	}
	for name, want := range map[string]string{
		"Action": "ConfirmSubscription", "TopicArn": fields["TopicArn"],
		"Token": fields["Token"],
	} {
		if got := query[name]; len(got) != 1 || got[0] != want {
			return fmt.Errorf("its parameter %s is not that of the message", name)
		}
	}
	return nil
}

// withoutURL removes the URL from an error of http.Client, because it contains the token.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("request the SubscribeURL: %w", failed.Err)
	}
	return err
}
