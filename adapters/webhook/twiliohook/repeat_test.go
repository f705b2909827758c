package twiliohook_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/twiliohook"
	"github.com/txonce/txonce/internal/test/verifiers"
	"github.com/txonce/txonce/observe"
)

// Twilio may report a status twice, with what the carrier says about its time. Other differences are no repeat.
func TestStatusIsReportedAgain(t *testing.T) {
	c, outcomes := verifiers.NewConsumer(t)
	v := newVerifier(t, twiliohook.Config{})
	receive := func(change url.Values) {
		t.Helper()
		form := status()
		for name, values := range change {
			form[name] = values
			if values == nil {
				form.Del(name)
			}
		}
		events, err := v.Verify(t.Context(), delivery(target, twiliohook.Sign(token, target, form), form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		payload, err := url.ParseQuery(string(events[0].Message.Payload))
		if diff := cmp.Diff(form, payload); err != nil || diff != "" {
			t.Errorf("the handler gets all parameters: %v (-want +got)\n%s", err, diff)
		}
		if err := c.Process(t.Context(), &events[0].Message); err != nil {
			t.Fatal(err)
		}
	}
	receive(url.Values{"RawDlrDoneDate": {"2601041530"}})
	for _, repeat := range []url.Values{
		{"RawDlrDoneDate": {"2601041531"}},
		nil,
		{"RawDlrDoneDate": {"2601041530"}, "ApiVersion": {"2010-04-01"}},
		{"RawDlrDoneDate": {"1", "2"}},
	} {
		receive(repeat)
	}
	if diff := cmp.Diff([]string{message + ":delivered"}, outcomes.Handled); diff != "" || len(outcomes.Parked) > 0 {
		t.Errorf("handled (-want +got)\n%s\nparked %v", diff, outcomes.Parked)
	}
	for _, other := range []url.Values{
		{"To": {"+1"}},
		{"ErrorCode": {"30003"}},
		{"RawDlrDoneDate": {"2601041530To+491701234567"}, "To": nil},
	} {
		receive(other)
	}
	mismatch := message + ":delivered " + string(observe.CauseMismatch)
	if diff := cmp.Diff([]string{mismatch, mismatch, mismatch}, outcomes.Parked); diff != "" {
		t.Errorf("parked (-want +got)\n%s", diff)
	}
}
